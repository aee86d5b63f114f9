// Package page tests the live page in a browser: over real traffic between two namespaces, with many queue pairs, and
// with stored files.
package page
