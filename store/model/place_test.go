package model

import "testing"

// Labels of an endpoint's locality have the known locality, before its own labels; all other labels are its own.
func TestSelects(t *testing.T) {
	e := &Endpoint{Network: "n1", Cluster: "west", Node: "node-1", Locality: "r/z", Labels: map[string]string{
		"version": "v1", "topology.istio.io/cluster": "east", "topology.kubernetes.io/zone": "other", "topology.istio.io/subzone": "s", "kubernetes.io/hostname": "node-2", "empty": ""}}
	for _, c := range []struct {
		key, value string
		want       bool
	}{
		{"version", "v1", true}, {"version", "v2", false}, {"lost", "", false}, {"empty", "", true},
		{"topology.istio.io/cluster", "west", true}, {"topology.istio.io/cluster", "east", false},
		{"topology.istio.io/network", "n1", true}, {"topology.istio.io/network", "", false},
		{"kubernetes.io/hostname", "node-1", true}, {"kubernetes.io/hostname", "node-2", false},
		{"topology.kubernetes.io/region", "r", true}, {"topology.kubernetes.io/zone", "z", true}, {"topology.kubernetes.io/zone", "other", false},
		{"topology.istio.io/subzone", "s", true}, {"topology.istio.io/subzone", "", false},
	} {
		if got := Selects(map[string]string{c.key: c.value}, e); got != c.want {
			t.Errorf("%s=%s: %v", c.key, c.value, got)
		}
	}
	if own := (&Endpoint{Labels: map[string]string{"topology.istio.io/cluster": "vm"}}); !Selects(map[string]string{"topology.istio.io/cluster": "vm"}, own) || !Selects(nil, own) {
		t.Error("what nothing is known of is not what it says of itself")
	}
}

func TestStatedLocality(t *testing.T) {
	const topology, old = "topology.istio.io/locality", "istio-locality"
	for _, c := range []struct {
		labels map[string]string
		want   string
	}{
		{nil, ""},
		{map[string]string{RegionLabel: "r"}, ""},
		{map[string]string{old: "r.z.s"}, "r/z/s"},
		{map[string]string{topology: "r.z"}, "r/z"},
		{map[string]string{topology: "r8.z8.s8", old: "r9.z9"}, "r8/z8/s8"},
		{map[string]string{topology: "", old: "r9.z9"}, ""},
		{map[string]string{topology: "r.1/z"}, "r.1/z"}, // of a proxy's metadata: no label of Kubernetes has a slash
	} {
		if got := StatedLocality(c.labels); got != c.want {
			t.Errorf("%v: %q, want %q", c.labels, got, c.want)
		}
	}
}
