// Package install tests installations: "make install" into a separate root, the packages of "make package", and that
// the same source gives the same bytes. It has tests only.
package install
