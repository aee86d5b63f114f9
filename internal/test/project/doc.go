// Package project tests the files that a project has beside its code: licences, notices, and what CHANGELOG,
// CONTRIBUTING and SECURITY say of the tree.
package project
