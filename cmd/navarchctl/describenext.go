package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/describe"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/store/problem"
)

// next returns a function that suggests the next command, or nil if no command is useful.
func (d *description) next(q describe.Query, out *show.Described) func(*cobra.Command, output) {
	if slices.ContainsFunc(out.Problems, func(p inspect.Problem) bool { return p.Severity == problem.Error }) {
		if d.offline.configDir != "" {
			return nextIs("all findings about the folder, with their lines", "analyze", "-f", d.offline.configDir)
		}
		return nextIs("the problems of all objects", "problems")
	}
	if (q.Noun == describe.Pod || q.Noun == describe.Workload) && d.host == "" {
		if len(out.Groups) == 0 {
			return nil
		}
		return nextIs("describes how it reaches one host", "describe", q.Noun, q.Name+"."+q.Namespace, "--host", "HOST")
	}
	words := requestTo(out, d.offline.proxy)
	if words == nil {
		return nil
	}
	return nextIs("follows a request", append([]string{"why"}, words...)...)
}

// requestTo returns arguments of the command why, for one request that the description covers. The client is the first
// described proxy of a workload. If only gateways are described, the request goes to a gateway's listener. If the
// description covers no such request, requestTo returns nil. If node is not empty, it is the file of --proxy, and takes
// the place of the proxy's name.
func requestTo(out *show.Described, node string) []string {
	for _, g := range out.Groups {
		if g.Side == describe.Outbound && !g.Gateway {
			host, scheme, port := hostOf(g)
			return []string{"--from", nameOr(node, g), scheme + "://" + host + port + "/"}
		}
	}
	for _, g := range out.Groups {
		if g.Side != describe.Outbound {
			continue
		}
		if host, scheme, port := listenerOf(g); port != "" {
			return []string{"--to", nameOr(node, g), scheme + "://" + host + "/", "--address", port}
		}
	}
	return nil
}

// nameOr returns node, or the name of the group's first proxy if node is empty.
func nameOr(node string, g describe.Group) string {
	if node != "" {
		return node
	}
	return g.Proxies[0]
}

// hostOf returns the first host that a group describes in full, or "HOST" if there is no such host. The results scheme
// and port are for a request to the host. The port has the form ":PORT", and is empty if no port is known. hostOf
// chooses the first port with routes, if the host's service lists this port or lists no ports. If there is no such
// port, it chooses the first port of the service.
func hostOf(g describe.Group) (host, scheme, port string) {
	host, scheme = "HOST", "http"
	var served [][2]string // number and protocol of each port of the service
	for _, s := range g.Sections {
		name, isHost := strings.CutPrefix(s.Name, "host ")
		if isHost && host != "HOST" {
			return host, scheme, port // the next host
		}
		if isHost {
			host = name
		}
		for _, f := range s.Facts {
			if list, is := strings.CutPrefix(f.Text, "ports "); is && f.Subject == "service" {
				for one := range strings.SplitSeq(list, ", ") {
					number, protocol, _ := strings.Cut(one, " ")
					served = append(served, [2]string{number, protocol})
				}
			}
			number, is := strings.CutPrefix(f.Subject, "port ")
			if !is || port != "" {
				continue
			}
			number = number[:strings.IndexAny(number+" ", " ,")]
			at := slices.IndexFunc(served, func(p [2]string) bool { return p[0] == number })
			if at >= 0 {
				port, scheme = ":"+number, schemeOf(served[at][1])
			} else if len(served) == 0 {
				port = ":" + number
			}
		}
	}
	if port == "" && len(served) > 0 {
		port, scheme = ":"+served[0][0], schemeOf(served[0][1])
	}
	return host, scheme, port
}

// schemeOf returns the scheme of a URL for requests to a port with a protocol: https, http or tcp.
func schemeOf(protocol string) string {
	switch {
	case protocol == "HTTPS" || protocol == "TLS":
		return "https"
	case strings.HasPrefix(protocol, "HTTP") || strings.HasPrefix(protocol, "GRPC") || protocol == "":
		return "http"
	}
	return "tcp"
}

// gatewayRoutes matches the subject of a fact about a gateway's route configuration. The subject is the name of the
// route configuration, which begins with protocol and port. The description of a Gateway puts a host before the name.
var gatewayRoutes = regexp.MustCompile(`^(?:(\S+) )?(https?)\.([0-9]+)(?:\.|$)`)

// listenerOf returns the host, the scheme and the port of a request that a gateway's first route configuration serves.
// The result port is ":PORT" with the port that the gateway binds. It is empty if no route configuration is described.
// The result host is "HOST" if no host without a wildcard is known.
func listenerOf(g describe.Group) (host, scheme, port string) {
	for _, s := range g.Sections {
		if name, is := strings.CutPrefix(s.Name, "host "); is && port == "" {
			host = name
		}
		for _, f := range s.Facts {
			found := gatewayRoutes.FindStringSubmatch(f.Subject)
			if found == nil || port != "" {
				continue
			}
			if scheme, port = found[2], ":"+found[3]; found[1] != "" {
				host = found[1]
			}
		}
	}
	if host == "" || strings.HasPrefix(host, "*") {
		host = "HOST"
	}
	return host, scheme, port
}
