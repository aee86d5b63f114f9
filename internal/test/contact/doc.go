// Package contact tests a new user's first steps: the report of "rocectl doctor", the messages for the likeliest
// mistakes, and the tutorials as written. It has tests only.
package contact
