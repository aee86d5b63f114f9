// Package page tests the live page in a browser: over real traffic between two namespaces, with
// many queue pairs, and of stored files.
package page
