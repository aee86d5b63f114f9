cd "$scratch" # the page makes the clone
rm -rf roced
