package qp_test

import "roced/qp"

func init() { benchTune = func(c *qp.Config) { c.Tuning = qp.Software } }
