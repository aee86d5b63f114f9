// Package siege attacks a daemon. Programs of an unprivileged user try to stall, fill or break it, while another user
// writes and checks every byte. docs/design/siege.md lists the attacks and the requirements. The package has tests only.
package siege
