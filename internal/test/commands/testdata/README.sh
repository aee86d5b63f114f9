cd "$scratch" # the page makes the clone
rm -rf roced
# The end of the daemon is a failure for rocectl trace, the last command in the background.
roced() {
	command roced "$@"
	[ "$1" != down ] || unset 'started[-1]'
}
