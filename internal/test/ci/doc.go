// Package ci tests the CI integrations for other projects: the action for GitHub, the template for GitLab and the
// example workflow. It lints them, and runs their steps unmodified in an imitation of a runner.
package ci
