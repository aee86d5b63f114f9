module roced.io/roced/otg

go 1.26.0

require github.com/open-traffic-generator/snappi/gosnappi v1.48.0

require roced.io/roced v0.0.0

replace roced.io/roced => ../
