// Package contact tests what those meet first who do not know roced yet: what "rocectl doctor" says of a machine, what
// commands say to the likeliest mistakes, and the tutorials, as they stand. It has tests only.
package contact
