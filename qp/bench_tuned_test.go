package qp_test

import "roced.io/roced/qp"

func init() { benchTune = func(c *qp.Config) { c.Tuning = qp.Software } }
