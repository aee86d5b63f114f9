// Package contact tests a new user's first steps: the report of "rocectl doctor", and the messages for the likeliest
// mistakes. It has tests only.
package contact
