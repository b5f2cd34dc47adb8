package host

import (
	"cmp"

	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// placeLabel returns the value of a label that is derived from a proxy's place. The result known is false for all other
// labels.
func (t *Table) placeLabel(key string, inputs view.Inputs) (value string, known bool) {
	switch key {
	case model.NetworkLabel:
		return inputs.Network, true
	case model.NodeLabel:
		return inputs.Node, true
	case model.ClusterLabel:
		return cmp.Or(t.key.Cluster, t.in.Cluster), true
	}
	return model.LocalityLabel(inputs.Locality, key)
}

// noValue is a value that no label has.
const noValue = "\x00"

// mostReplaced is the number of labels of failoverPriority beyond which values are not replaced.
const mostReplaced = 32

// balance combines a locality setting with the inputs (labels, locality and network) of proxies. The result decides the
// distribution of their requests among the members of a cluster. It is zero without a setting.
//
// Values of labels are replaced by noValue if this does not change the order of the members. So proxies with labels
// that no member has share one assignment, whatever the number of their values. Each key is in the result once.
func (t *Table) balance(setting traffic.Localities, inputs view.Inputs, members intern.List[model.Member]) endpoint.Balance {
	if !setting.Stated() {
		return endpoint.Balance{}
	}
	b := endpoint.Balance{Localities: setting, Locality: inputs.Locality}
	var labels []string
	compared, priority := setting.Compared(), setting.Priority()
	ended := false // no member has the value of an earlier label, so no further labels are compared
	seen := make(map[string]bool, len(compared))
	for i, key := range compared {
		if seen[key] {
			continue
		}
		seen[key] = true
		value, known := t.placeLabel(key, inputs)
		if !known {
			value, _ = inputs.Label(key)
			same := false // by the last label, all members have the same priority
			if !ended && len(seen) <= mostReplaced {
				same, ended = t.have(members, key, value)
				same = same && i == len(compared)-1 && key == priority[len(priority)-1]
			}
			if ended || same {
				value = noValue
			}
		}
		labels = append(labels, key+"="+value)
	}
	b.Labels = strs.List(labels...)
	return b
}

// have reports whether all members of a cluster have the given value of a label, and whether no member has it. A member
// without the label has the value "". Gateways of other networks, which may replace members, have no labels.
func (t *Table) have(members intern.List[model.Member], key, value string) (all, none bool) {
	all, none = true, true
	if t.in.Gateways.Len() > 0 {
		all, none = value == "", value != ""
	}
	for i := 0; i < members.Len() && (all || none); i++ {
		if has, _ := model.LabelOf(members.All()[i].Endpoint, key); has == value {
			none = false
		} else {
			all = false
		}
	}
	return all, none
}

var strs intern.Table[string]
