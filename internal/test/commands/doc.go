// Package commands runs every command of README.md and docs, page by page and as written. It has tests only.
package commands
