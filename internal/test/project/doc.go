// Package project tests the files besides the code: licences, notices, and the paths and commands that documents name.
package project
