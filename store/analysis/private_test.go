package analysis

import (
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// A finding about an object names an object of another namespace only if that object is exported to its namespace. Two
// meshes that differ in the names of private objects yield equal messages. The whole messages have all names.
func TestFindingsNameNoPrivateObjects(t *testing.T) {
	const routes = "http: [{route: [{destination: {host: web.shop}}]}]"
	for _, c := range []struct{ of, others string }{
		{"VirtualService shop/z {hosts: [x.example], gateways: [mesh], exportTo: ['*'], " + routes + "}",
			"VirtualService victim/@NAME {hosts: [x.example], gateways: [mesh], exportTo: [@TO], " + routes + "}"},
		{"ServiceEntry shop/z {hosts: [x.example], exportTo: ['*'], ports: [{number: 80, protocol: PROTOCOL_HTTP}]}",
			"ServiceEntry avictim/@NAME {hosts: [x.example], exportTo: [@TO], ports: [{number: 80, protocol: PROTOCOL_TCP}]}"},
		{"ServiceEntry shop/z {hosts: [x.example], exportTo: ['*'], ports: [{number: 80, protocol: PROTOCOL_HTTP}]}",
			"ServiceEntry avictim/@NAME {hosts: [x.example], exportTo: [@TO], resolution: RESOLUTION_NONE, ports: [{number: 81}]}"},
		{"ServiceEntry shop/z {hosts: [x.example], exportTo: ['*'], ports: [{number: 80}]}",
			"Service victim/@NAME {hosts: [x.example], exportTo: [@TO], ports: [{number: 81}]}"},
	} {
		found := func(name, to string) []object.Problem {
			other := strings.NewReplacer("@NAME", name, "@TO", to).Replace(c.others)
			own := slices.DeleteFunc(Of(Settings{}, slices.Values([]model.Record{record(t, c.of), record(t, other)})).Problems(),
				func(p object.Problem) bool { return p.ID.Namespace != "shop" || p.Code != problem.Duplicate })
			if len(own) == 0 {
				t.Fatalf("%s: no finding beside %s", c.of, other)
			}
			return own
		}
		first, second, exported := found("secret-one", "third"), found("secret-two", "third"), found("open-one", "shop, third")
		for i, p := range first {
			if strings.Contains(p.Message, "victim") || p.Message != second[i].Message {
				t.Errorf("%s: %q and %q", c.of, p.Message, second[i].Message)
			}
			if !strings.Contains(p.Full(), "victim/secret-one") {
				t.Errorf("%s: operators read %q", c.of, p.Full())
			}
		}
		for _, p := range exported {
			if !strings.Contains(p.Message, "victim/open-one") || p.Whole != "" {
				t.Errorf("%s: beside an exported object %q", c.of, p.Message)
			}
		}
	}
}
