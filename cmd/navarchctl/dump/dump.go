// Package dump parses a proxy's configuration: the config_dump of Envoy's admin interface or of navarchd, and Envoy's
// /clusters.
//
// Owns: nothing.
// Reads: untrusted bytes.
// Never: fails as a whole because of one resource that it does not understand; uses a socket or a file.
package dump

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/xds"
)

// Dump is the resources of one proxy by type, in the order of the source.
type Dump struct {
	Resources [xds.NumTypes][]Resource
	// Has reports which types have a section, even an empty one. Envoy omits endpoints unless it is asked with
	// include_eds.
	Has [xds.NumTypes]bool
	// Node is the proxy's node, from the section of the bootstrap; zero: the dump has no such section.
	Node Node
	// Hosts are the endpoints of Envoy's /clusters; nil: it was not read.
	Hosts []Host
	raw   bool // resources are not decoded
}

// Node is a proxy's node as the proxy itself states it. Each field is empty where the dump does not have it.
type Node struct {
	ID        string // sidecar~IP~NAME.NAMESPACE~DOMAIN
	Namespace string
	Account   string // the service account's name
}

// Addresses returns the IP address in the node's id, if there is one.
func (n Node) Addresses() []string {
	if parts := strings.Split(n.ID, "~"); len(parts) == 4 && parts[1] != "" {
		return parts[1:2]
	}
	return nil
}

// Resource is one resource of a dump.
type Resource struct {
	Type    xds.Type
	Name    string
	Version string // empty: unknown
	// Raw is the resource in the dump; nil: the proxy has no version of it, since every version was refused or is
	// withheld.
	Raw json.RawMessage
	// Message is Raw decoded, without unknown parts; nil if Raw is nil, or for the reason in Problem.
	Message proto.Message
	Problem error
	// Where is the resource's list in Envoy's dump: "static", "warming", "draining"; empty: active.
	Where string
	// Failure is a version that the proxy does not have; nil: none.
	Failure *Failure
}

// Failure is a version that the proxy refused, or that is withheld from it.
type Failure struct {
	Withheld bool   `json:"withheld,omitempty"`
	Version  string `json:"version,omitempty"`
	Details  string `json:"details"`
	Last     string `json:"last_update_attempt,omitempty"` // RFC 3339
}

// Word returns REFUSED or WITHHELD.
func (f *Failure) Word() string {
	if f.Withheld {
		return "WITHHELD"
	}
	return "REFUSED"
}

// object is a JSON object with unparsed fields.
type object map[string]json.RawMessage

// field returns a field by its proto name, even if it is written in proto's JSON name.
func (o object) field(name string) json.RawMessage {
	if raw, ok := o[name]; ok {
		return raw
	}
	return o[camel(name)]
}

// camel returns proto's JSON name of a field.
func camel(name string) string {
	first, rest, _ := strings.Cut(name, "_")
	for part := range strings.SplitSeq(rest, "_") {
		if part != "" {
			first += strings.ToUpper(part[:1]) + part[1:]
		}
	}
	return first
}

// text returns a string field; empty if it has another type.
func (o object) text(name string) (s string) {
	_ = json.Unmarshal(o.field(name), &s)
	return s
}

// object returns an object field; nil if it has another type.
func (o object) object(name string) (out object) {
	if json.Unmarshal(o.field(name), &out) != nil {
		return nil
	}
	return out
}

// list returns a field with a list of objects; elements of other types are nil.
func (o object) list(name string) []object {
	var raws []json.RawMessage
	if json.Unmarshal(o.field(name), &raws) != nil {
		return nil
	}
	out := make([]object, len(raws))
	for i, raw := range raws {
		if json.Unmarshal(raw, &out[i]) != nil {
			out[i] = nil
		}
	}
	return out
}

// section describes one type's section of a dump: the message's name, its lists, and the field of an entry with the
// resource (https://www.envoyproxy.io/docs/envoy/latest/api-v3/admin/v3/config_dump_shared.proto).
type section struct {
	message, body string
	lists         []list
}

type list struct{ field, where string }

var sections = [xds.NumTypes]section{
	xds.Cluster: {"envoy.admin.v3.ClustersConfigDump", "cluster",
		[]list{{"static_clusters", "static"}, {"dynamic_active_clusters", ""}, {"dynamic_warming_clusters", "warming"}}},
	xds.Endpoint: {"envoy.admin.v3.EndpointsConfigDump", "endpoint_config",
		[]list{{"static_endpoint_configs", "static"}, {"dynamic_endpoint_configs", ""}}},
	xds.Listener: {"envoy.admin.v3.ListenersConfigDump", "listener",
		[]list{{"static_listeners", "static"}, {"dynamic_listeners", ""}}},
	xds.Route: {"envoy.admin.v3.RoutesConfigDump", "route_config",
		[]list{{"static_route_configs", "static"}, {"dynamic_route_configs", ""}}},
	xds.Secret: {"envoy.admin.v3.SecretsConfigDump", "secret",
		[]list{{"static_secrets", "static"}, {"dynamic_active_secrets", ""}, {"dynamic_warming_secrets", "warming"}}},
	xds.Extension: {"envoy.admin.v3.EcdsConfigDump", "ecds_filter", []list{{"ecds_filters", ""}}},
}

// Read parses Envoy's /config_dump, navarchd's /debug/config_dump or Envoy's /clusters?format=json. Unknown sections
// and resources are skipped. The error reports that raw has another form.
func Read(raw []byte) (*Dump, error) {
	var top object
	if err := json.Unmarshal(raw, &top); err != nil {
		return nil, fmt.Errorf("this is no JSON object: %w", err)
	}
	d := &Dump{}
	switch {
	case top.field("cluster_statuses") != nil:
		if err := d.ReadClusters(raw); err != nil {
			return nil, err
		}
		return d, nil
	case top.field("configs") == nil:
		return nil, errors.New(`this is no config_dump: it has no field "configs"`)
	}
	for _, config := range top.list("configs") {
		name := config.text("@type")
		name = name[strings.LastIndexByte(name, '/')+1:]
		if name == "envoy.admin.v3.BootstrapConfigDump" {
			d.Node = nodeOf(config.object("bootstrap").object("node"))
		}
		t := typeOf(name)
		if t == xds.Unknown {
			continue
		}
		d.Has[t] = true
		for _, l := range sections[t].lists {
			for _, e := range config.list(l.field) {
				d.add(t, l.where, e)
			}
		}
	}
	return d, nil
}

// nodeOf returns the node of a bootstrap.
func nodeOf(node object) Node {
	metadata := node.object("metadata")
	n := Node{ID: node.text("id"), Namespace: metadata.text("NAMESPACE"), Account: metadata.text("SERVICE_ACCOUNT")}
	if parts := strings.Split(n.ID, "~"); len(parts) == 4 && n.Namespace == "" {
		n.Namespace = parts[2][strings.LastIndexByte(parts[2], '.')+1:]
	}
	return n
}

// add adds one entry. A listener's entry may have several resources: the active one, and the next or the last one.
func (d *Dump) add(t xds.Type, where string, e object) {
	bodies := []struct {
		where string
		in    object
	}{{where, e}}
	if t == xds.Listener && where == "" {
		bodies[0].in = e.object("active_state")
		for _, state := range []string{"warming", "draining"} {
			if in := e.object(state + "_state"); in != nil {
				bodies = append(bodies, struct {
					where string
					in    object
				}{state, in})
			}
		}
	}
	failure, failed := failureOf(e)
	added := false
	for i, b := range bodies {
		r := Resource{Type: t, Where: b.where, Version: b.in.text("version_info"), Raw: b.in.field(sections[t].body)}
		if bytes.Equal(r.Raw, []byte("null")) {
			r.Raw = nil
		}
		if r.Raw == nil && (i > 0 || failure == nil && len(bodies) > 1) {
			continue
		}
		if r.Raw != nil && !d.raw {
			r.Message, r.Problem = decode(t, r.Raw)
		}
		r.Name = cmp.Or(nameOf(t, r.Raw), e.text("name"), nameOf(t, failed))
		if !added {
			r.Failure = failure
		}
		if t == xds.Secret && failure != nil && where == "warming" {
			r.Raw, r.Message, r.Problem = nil, nil, nil // the proxy has no version: the entry only names the refused one
		}
		added = true
		d.Resources[t] = append(d.Resources[t], r)
	}
}

// nameOf returns the name in a resource.
func nameOf(t xds.Type, raw json.RawMessage) string {
	var o object
	if raw == nil || json.Unmarshal(raw, &o) != nil {
		return ""
	}
	if t == xds.Endpoint {
		return o.text("cluster_name")
	}
	return o.text("name")
}

// failureOf returns the error state of an entry and the refused resource; nil: the entry has no error state.
func failureOf(e object) (*Failure, json.RawMessage) {
	state := e.object("error_state")
	if state == nil {
		return nil, nil
	}
	f := &Failure{Version: state.text("version_info"), Details: state.text("details"), Last: state.text("last_update_attempt")}
	f.Withheld = strings.HasPrefix(f.Details, inspect.WithheldDetails)
	return f, state.field("failed_configuration")
}
