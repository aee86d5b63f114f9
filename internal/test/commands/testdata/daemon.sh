cd "$scratch" # files of the user
