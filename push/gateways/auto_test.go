package gateways

import (
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// A namespace has four servers of mode AUTO_PASSTHROUGH on a router, because each has a chain for each service.
// Promise: security-gateways.md#make-a-gateway-fail
func TestAutoServersOfANamespace(t *testing.T) {
	one, more := first("TLS+AUTO_PASSTHROUGH 1 *", "TLS+AUTO_PASSTHROUGH 2 *", "TLS+AUTO_PASSTHROUGH 3 *"),
		gateway("a/more@2", "TLS+AUTO_PASSTHROUGH 4 *", "TLS+AUTO_PASSTHROUGH 5 *")
	listeners, conflicts := Merge(Router{Gateways: []*model.Gateway{one, more, second("TLS+AUTO_PASSTHROUGH 6 *")}})
	var ports []string
	for _, l := range listeners {
		ports = append(ports, l.Name("*"))
	}
	if got := strings.Join(ports, " "); got != "*_1 *_2 *_3 *_4 *_6" {
		t.Error(got)
	}
	if len(conflicts) != 1 || conflicts[0].Loser.Name() != "a/more" || conflicts[0].Loser.Index != 1 {
		t.Errorf("%+v", conflicts)
	}
}
