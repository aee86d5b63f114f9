package scenario

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/fabric"
)

// QoS maps DSCPs to traffic classes, as in SONiC's DSCP_TO_TC_MAP. A class is a queue, a priority group and a priority of flow
// control.
type QoS struct {
	Classes map[string]uint8 `yaml:"dscp_to_class"` // by DSCP; others have class 0
	Ack     *uint8           `yaml:"ack_dscp"`      // none: that of the data
	CNP     *uint8           `yaml:"cnp_dscp"`      // none: cnpDSCP
}

const (
	maxDSCP = 63
	cnpDSCP = 48 // the default of NICs
)

// qos sets the classes of workloads, acknowledgements and CNPs by their DSCPs.
func (f *File) qos(c *sim.Config) error {
	q := f.QoS
	if q == nil {
		for i := range f.Workload {
			if f.Workload[i].DSCP != nil {
				return f.At(fmt.Sprintf("workload.%d.dscp", i), "no map of DSCPs: set qos.dscp_to_class, or class instead of dscp")
			}
		}
		return nil
	}
	if len(f.Transport.ClassLimits) > 0 {
		return f.At("qos", "transport.class_limits selects the classes; remove one of them")
	}
	for _, text := range slices.Sorted(maps.Keys(q.Classes)) {
		key := "qos.dscp_to_class." + text
		if n, err := strconv.ParseUint(text, 10, 8); err != nil || n > maxDSCP || strconv.FormatUint(n, 10) != text {
			return f.At(key, "%q: a DSCP is from 0 to %d", text, maxDSCP)
		}
		if class := q.Classes[text]; class >= fabric.Classes {
			return f.At(key, "class %d: must be from 0 to %d", class, fabric.Classes-1)
		}
	}
	c.DSCP = new([fabric.Classes]uint8)
	for i := range f.Workload {
		if err := f.classOf(c, fmt.Sprintf("workload.%d", i), &f.Workload[i]); err != nil {
			return err
		}
	}
	cnp := uint8(cnpDSCP)
	if q.CNP != nil {
		cnp = *q.CNP
	}
	if err := f.control(c, "qos.cnp_dscp", cnp, &c.Classes.CNP); err != nil {
		return err
	}
	if c.Classes.AckAsData = q.Ack == nil; q.Ack == nil {
		return nil
	}
	return f.control(c, "qos.ack_dscp", *q.Ack, &c.Classes.Ack)
}

// control sets the class of control packets.
func (f *File) control(c *sim.Config, key string, dscp uint8, class *uint8) error {
	if dscp > maxDSCP {
		return f.At(key, "%d: a DSCP is from 0 to %d", dscp, maxDSCP)
	}
	*class = f.QoS.Classes[fmt.Sprint(dscp)]
	c.DSCP[*class] = cmp.Or(c.DSCP[*class], dscp)
	return nil
}

// classOf sets the class of a workload. Packets of a class have one DSCP.
func (f *File) classOf(c *sim.Config, key string, w *Work) error {
	dscp := uint8(0)
	switch {
	case f.Origin(key+".class") != "":
		return f.At(key+".class", "qos selects classes by DSCP; set dscp instead of class")
	case w.DSCP != nil:
		dscp = *w.DSCP
	}
	if dscp > maxDSCP {
		return f.At(key+".dscp", "%d: a DSCP is from 0 to %d", dscp, maxDSCP)
	}
	w.Class = f.QoS.Classes[fmt.Sprint(dscp)]
	if w.Class >= ackClass {
		return f.At(key+".dscp", "%d has class %d in qos.dscp_to_class; data has classes from 0 to %d", dscp, w.Class, ackClass-1)
	}
	c.DSCP[w.Class] = cmp.Or(c.DSCP[w.Class], dscp)
	return nil
}

// mask returns a bit mask of classes.
func (f *File) mask(key string, classes []uint8) (mask uint8, err error) {
	for i, class := range classes {
		if class >= fabric.Classes {
			return 0, f.At(fmt.Sprintf("%s.%d", key, i), "class %d: must be from 0 to %d", class, fabric.Classes-1)
		}
		mask |= 1 << class
	}
	return mask, nil
}
