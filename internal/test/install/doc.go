// Package install tests what is installed: "make install" into a root of its own, the packages of "make package", and
// that the same source gives the same bytes. It has tests only.
package install
