package envoy

import (
	"strconv"
	"strings"

	"navarch.io/navarch/push/plan/routes"
	"navarch.io/navarch/push/xds"
)

// ConfigNamed derives the Config of a route configuration from its name. For PORT it sets Port. For HOST:PORT it sets
// Port and OneHost. For xds.HTTPProxy it sets WithPorts. For a Unix socket and any other name, only Name is set. A port
// has no leading zeros and is at most 65535.
func ConfigNamed(name string) routes.Config {
	c := routes.Config{Name: name}
	switch {
	case strings.HasPrefix(name, "unix://"):
		return c
	case name == xds.HTTPProxy:
		c.WithPorts = true
		return c
	}
	host, text := "", name
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		host, text = name[:i], name[i+1:]
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if spelled := strconv.FormatUint(port, 10); err != nil || spelled != text || host == "" && text != name {
		return c
	}
	c.Port, c.OneHost = uint32(port), host != ""
	return c
}
