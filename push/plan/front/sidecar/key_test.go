package sidecar

import (
	"testing"

	"navarch.io/navarch/push/plan/front/envoy"
	"navarch.io/navarch/push/plan/routes"
	"navarch.io/navarch/push/xds"
)

// A listener requests the name of the route configuration that contains its hosts.
func TestNamesAreConfigs(t *testing.T) {
	for name, c := range map[string]struct {
		key  routeKey
		want routes.Config
	}{
		"80":                     {routeKey{kind: ofPort, port: 80}, routes.Config{Port: 80}},
		"0":                      {routeKey{kind: ofPort}, routes.Config{}},
		"web.shop.svc:8080":      {routeKey{kind: ofHost, port: 8080, text: "web.shop.svc"}, routes.Config{Port: 8080, OneHost: true}},
		"*.shop.svc:80":          {routeKey{kind: ofHost, port: 80, text: "*.shop.svc"}, routes.Config{Port: 80, OneHost: true}},
		"unix:///var/run/x:8080": {routeKey{kind: ofSocket, text: "unix:///var/run/x:8080"}, routes.Config{}},
		"http_proxy":             {routeKey{kind: ofProxy, port: 9000}, routes.Config{WithPorts: true}},
		xds.AllowAny:             {unknownHosts, routes.Config{}},
		"custom":                 {routeKey{kind: ofFilter, text: "custom"}, routes.Config{}},
		":80":                    {routeKey{kind: ofFilter, text: ":80"}, routes.Config{}},
		"080":                    {routeKey{kind: ofFilter, text: "080"}, routes.Config{}},
		"a:080":                  {routeKey{kind: ofFilter, text: "a:080"}, routes.Config{}},
		"a:99999":                {routeKey{kind: ofFilter, text: "a:99999"}, routes.Config{}},
	} {
		c.want.Name = name
		if got := envoy.ConfigNamed(name); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if got := c.key.config(); got != c.want {
			t.Errorf("%s of %+v: %+v, want %+v", name, c.key, got, c.want)
		}
	}
}
