package endpoint

import (
	"fmt"
	"strings"
	"testing"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

var gatewayLists intern.Table[Gateway]

// The entries for a proxy of network n1 with members of three networks: "address:port:weight", with mtls if Envoy uses
// mTLS.
func TestHorizon(t *testing.T) {
	in := func(network, cluster, address, locality string, mtls bool) model.Member {
		return at(&model.Endpoint{Address: address, Network: network, Cluster: cluster, Locality: locality, Mtls: mtls}, 8080)
	}
	one := []Gateway{{"n2", "west", "192.0.2.1", 15443}}
	two := append(one, Gateway{"n2", "west", "192.0.2.2", 443})
	three := append([]Gateway{{"n1", "east", "192.0.2.9", 15443}, {"n1", "east", "192.0.2.8", 15443}, {"n1", "east", "192.0.2.7", 15443}}, two...)
	own, far := in("n1", "east", "10.1.0.1", "", true), in("n2", "west", "10.2.0.1", "", true)
	const alone traffic.TLS = 99 // stands for Horizon.Alone
	for name, c := range map[string]struct {
		network  string
		gateways []Gateway
		tls      traffic.TLS
		members  []model.Member
		plain    []model.Member
		setting  string
		want     string
	}{
		"its own network alone": {"n1", nil, alone, []model.Member{own, far, in("", "west", "10.9.0.1", "", false)}, nil, "",
			"10.1.0.1:8080:1 mtls, 10.9.0.1:8080:1"},
		"no gateways":                       {"n1", nil, traffic.AutoEndpoints, []model.Member{own, far}, nil, "", "10.1.0.1:8080:1 mtls, 10.2.0.1:8080:1 mtls"},
		"a gateway":                         {"n1", one, traffic.AutoEndpoints, []model.Member{own, far}, nil, "", "10.1.0.1:8080:1 mtls, 192.0.2.1:15443:1 mtls"},
		"seen from there":                   {"n2", one, traffic.AutoEndpoints, []model.Member{own, far}, nil, "", "10.1.0.1:8080:1 mtls, 10.2.0.1:8080:1 mtls"},
		"a proxy of no network":             {"", one, traffic.AutoEndpoints, []model.Member{own, far}, nil, "", "10.1.0.1:8080:1 mtls, 10.2.0.1:8080:1 mtls"},
		"an endpoint of no network":         {"n1", one, traffic.AutoEndpoints, []model.Member{in("", "west", "10.9.0.1", "", false)}, nil, "", "10.9.0.1:8080:1"},
		"a network without gateways":        {"n1", one, traffic.AutoEndpoints, []model.Member{in("n3", "west", "10.3.0.1", "", false)}, nil, "", "10.3.0.1:8080:1"},
		"weights add up, and are shared":    {"n1", two, traffic.AutoEndpoints, []model.Member{own, far, in("n2", "west", "10.2.0.2", "", true), in("n2", "west", "10.2.0.3", "", true)}, nil, "", "10.1.0.1:8080:2 mtls, 192.0.2.1:15443:3 mtls, 192.0.2.2:443:3 mtls"},
		"the least common multiple":         {"n1", three, traffic.AutoEndpoints, []model.Member{own, far}, nil, "", "10.1.0.1:8080:6 mtls, 192.0.2.1:15443:3 mtls, 192.0.2.2:443:3 mtls"},
		"nothing is scaled for nothing":     {"n1", three, traffic.AutoEndpoints, []model.Member{own}, nil, "", "10.1.0.1:8080:1 mtls"},
		"the gateways of the cluster":       {"n1", append(two, Gateway{"n2", "north", "192.0.2.3", 15443}), traffic.AutoEndpoints, []model.Member{in("n2", "north", "10.2.0.9", "", true)}, nil, "", "192.0.2.3:15443:6 mtls"},
		"without mTLS":                      {"n1", one, traffic.AutoEndpoints, []model.Member{own, in("n2", "west", "10.2.0.1", "", false)}, nil, "", "10.1.0.1:8080:1 mtls"},
		"without mTLS by a policy":          {"n1", one, traffic.AutoEndpoints, []model.Member{own, far}, []model.Member{far}, "", "10.1.0.1:8080:1 mtls"},
		"without mTLS by a rule":            {"n1", one, traffic.Plaintext, []model.Member{own, far}, nil, "", "10.1.0.1:8080:1 mtls"},
		"mTLS by a rule":                    {"n1", one, traffic.Mutual, []model.Member{in("n2", "west", "10.2.0.1", "", false)}, nil, "", "192.0.2.1:15443:1 mtls"},
		"TLS that is not the mesh's":        {"n1", one, traffic.Originate, []model.Member{own, far}, nil, "", "10.1.0.1:8080:1 mtls"},
		"the same address in two networks":  {"n1", one, traffic.AutoEndpoints, []model.Member{own, in("n2", "west", "10.1.0.1", "", true)}, nil, "", "10.1.0.1:8080:1 mtls, 192.0.2.1:15443:1 mtls"},
		"localities":                        {"n1", one, traffic.AutoEndpoints, []model.Member{in("n1", "east", "10.1.0.1", "r1", true), in("n2", "west", "10.2.0.1", "r2", true)}, nil, "", "r1 10.1.0.1:8080:1 mtls, r2 192.0.2.1:15443:1 mtls"},
		"a gateway stands once":             {"n1", one, traffic.AutoEndpoints, []model.Member{own, in("n2", "west", "10.2.0.1", "r2", true), in("n2", "west", "10.2.0.2", "r3", true)}, nil, "", "10.1.0.1:8080:1 mtls, r2 192.0.2.1:15443:2 mtls"},
		"once, with the nearest":            {"n1", one, traffic.AutoEndpoints, []model.Member{in("n2", "west", "10.2.0.1", "r2", true), in("n2", "west", "10.2.0.2", "r1", true)}, nil, "{}", "r1 192.0.2.1:15443:1 mtls"},
		"labels of a gateway are its place": {"n1", one, traffic.AutoEndpoints, []model.Member{own, far}, nil, "{failoverPriority: ['topology.istio.io/network=n2']}", "192.0.2.1:15443:1 mtls, 1 10.1.0.1:8080:1 mtls"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Spec{Cluster: cluster, Members: members.List(c.members...), Plain: members.List(c.plain...),
				Horizon: Horizon{Network: c.network, Gateways: gatewayLists.List(c.gateways...), TLS: c.tls}}
			if c.tls == alone {
				s.Horizon = Horizon{Network: c.network, Alone: true}
			}
			if c.setting != "" {
				s.Balance = Balance{Localities: traffic.Localities{Setting: setting(t, c.setting)}, Locality: "r1"}
			}
			var got []string
			cla := Assignment(s, IsAddress)
			if err := cla.ValidateAll(); err != nil {
				t.Error(err)
			}
			for _, l := range cla.Endpoints {
				sum := uint32(0)
				for _, e := range l.LbEndpoints {
					sum += e.LoadBalancingWeight.Value
					a := e.GetEndpoint().GetAddress().GetSocketAddress()
					text := fmt.Sprintf("%s:%d:%d", a.Address, a.GetPortValue(), e.LoadBalancingWeight.Value)
					if e.Metadata.FilterMetadata["envoy.transport_socket_match"].GetFields()["tlsMode"].GetStringValue() == "istio" {
						text += " mtls"
					}
					if l.Priority > 0 {
						text = fmt.Sprint(l.Priority, " ", text)
					}
					got = append(got, strings.TrimSpace(l.Locality.GetRegion()+" "+text))
				}
				if sum != l.LoadBalancingWeight.Value {
					t.Errorf("locality of %d weighs %d", sum, l.LoadBalancingWeight.Value)
				}
			}
			if text := strings.Join(got, ", "); text != c.want {
				t.Errorf("got  %s\nwant %s", text, c.want)
			}
		})
	}
}
