cd "$scratch" # the page makes the clone
rm -rf roced
# The end of the daemon is a failure for the capture and the trace of the page.
roced() {
	command roced "$@"
	[ "$1" != down ] || started=()
}
