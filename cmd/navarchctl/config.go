package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// dump is resources by plural noun, as Envoy's proto JSON with proto field names.
type dump = map[string][]map[string]any

func printConfig(w io.Writer, all dump, nouns []string, format output) error {
	if format != "table" {
		return format.print(w, all)
	}
	for i, noun := range nouns {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := table(w, configRows(noun, all[noun+"s"])); err != nil {
			return err
		}
	}
	return nil
}

// configRows is a short table of one type: one row for each cluster, listener, virtual host, endpoint.
func configRows(noun string, all []map[string]any) [][]string {
	heading, row := columns(noun)
	rows := [][]string{heading}
	for _, resource := range all {
		rows = append(rows, row(resource)...)
	}
	return rows
}

func columns(noun string) (heading []string, rows func(map[string]any) [][]string) {
	switch noun {
	case "cluster":
		return []string{"NAME", "TYPE", "LB POLICY", "CONNECT TIMEOUT"}, func(c map[string]any) [][]string {
			return [][]string{{text(c["name"]), cmp.Or(text(c["type"]), text(at(c, "cluster_type", "name")), "STATIC"),
				cmp.Or(text(c["lb_policy"]), "ROUND_ROBIN"), cmp.Or(text(c["connect_timeout"]), "-")}}
		}
	case "listener":
		return []string{"NAME", "ADDRESS", "DIRECTION", "CHAINS"}, func(l map[string]any) [][]string {
			return [][]string{{text(l["name"]), cmp.Or(address(at(l, "address")), "-"), cmp.Or(text(l["traffic_direction"]), "-"),
				fmt.Sprint(len(list(l["filter_chains"])))}}
		}
	case "secret":
		return secretHeading, secretRows
	case "route":
		return []string{"NAME", "VIRTUAL HOST", "DOMAINS", "ROUTES"}, routeRows
	}
	return []string{"CLUSTER", "ENDPOINT", "HEALTH", "WEIGHT", "LOCALITY"}, endpointRows
}

func routeRows(rc map[string]any) (rows [][]string) {
	name := text(rc["name"])
	for _, v := range list(rc["virtual_hosts"]) {
		vh, _ := v.(map[string]any)
		var domains []string
		for _, d := range list(vh["domains"]) {
			domains = append(domains, text(d))
		}
		if more := len(domains) - 2; more > 0 {
			domains = append(domains[:2], fmt.Sprintf("+ %d more", more))
		}
		rows = append(rows, []string{name, text(vh["name"]), strings.Join(domains, ", "), fmt.Sprint(len(list(vh["routes"])))})
	}
	if rows == nil {
		rows = [][]string{{name, "-", "-", "0"}}
	}
	return rows
}

func endpointRows(a map[string]any) (rows [][]string) {
	name := text(a["cluster_name"])
	for _, l := range list(a["endpoints"]) {
		group, _ := l.(map[string]any)
		var place []string
		for _, level := range []string{"region", "zone", "sub_zone"} {
			if part := text(at(group, "locality", level)); part != "" {
				place = append(place, part)
			}
		}
		for _, e := range list(group["lb_endpoints"]) {
			one, _ := e.(map[string]any)
			rows = append(rows, []string{name, address(at(one, "endpoint", "address")), cmp.Or(text(one["health_status"]), "UNKNOWN"),
				cmp.Or(text(one["load_balancing_weight"]), "1"), cmp.Or(strings.Join(place, "/"), "-")})
		}
	}
	if rows == nil {
		rows = [][]string{{name, "-", "-", "-", "-"}}
	}
	return rows
}

// at follows field names.
func at(v map[string]any, path ...string) any {
	for i, name := range path {
		if i == len(path)-1 {
			return v[name]
		}
		v, _ = v[name].(map[string]any)
	}
	return nil
}

func list(v any) []any { l, _ := v.([]any); return l }

func text(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// address prints a core.v3.Address.
func address(v any) string {
	a, _ := v.(map[string]any)
	if socket, ok := a["socket_address"].(map[string]any); ok {
		return fmt.Sprintf("%v:%v", socket["address"], socket["port_value"])
	}
	if pipe := text(at(a, "pipe", "path")); pipe != "" {
		return "unix://" + pipe
	}
	if len(a) == 0 {
		return ""
	}
	raw, err := json.Marshal(a)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// wraps says where Envoy's config_dump has the resources of a type: in which lists, and below which fields of their
// entries (https://www.envoyproxy.io/docs/envoy/latest/api-v3/admin/v3/config_dump_shared.proto).
var wraps = map[string]struct {
	lists []string
	path  []string
}{
	"cluster":  {[]string{"dynamic_active_clusters", "dynamic_warming_clusters"}, []string{"cluster"}},
	"listener": {[]string{"dynamic_listeners"}, []string{"active_state", "listener"}},
	"route":    {[]string{"dynamic_route_configs"}, []string{"route_config"}},
	"endpoint": {[]string{"dynamic_endpoint_configs"}, []string{"endpoint_config"}},
	"secret":   {[]string{"dynamic_active_secrets", "dynamic_warming_secrets"}, []string{"secret"}},
}

// envoyConfig reads what an Envoy has of what it got from its control plane.
func envoyConfig(ctx context.Context, admin string, nouns []string) (dump, error) {
	all := dump{}
	for _, noun := range nouns {
		all[noun+"s"] = []map[string]any{}
		for _, resource := range wraps[noun].lists {
			path := "/config_dump?resource=" + resource
			if noun == "endpoint" {
				path += "&include_eds"
			}
			var answer struct{ Configs []map[string]any }
			if err := fetch(ctx, admin, path, &answer); err != nil {
				if strings.Contains(err.Error(), "not found in config dump") {
					continue // Envoy's word for: there are none
				}
				return nil, err
			}
			for _, config := range answer.Configs {
				if r, ok := at(config, wraps[noun].path...).(map[string]any); ok { // a listener that only warms has none
					delete(r, "@type")
					all[noun+"s"] = append(all[noun+"s"], r)
				}
			}
		}
	}
	return all, nil
}
