// Package ci tests what jobs of other projects have: the action for GitHub, the template for GitLab and the example
// workflow. They are linted, and their steps run as they stand, by an imitation of a runner.
package ci
