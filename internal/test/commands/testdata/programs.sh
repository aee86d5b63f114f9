roced up --pair
