// Package dump parses the configuration of a proxy from JSON: the config_dump of Envoy's admin interface or of
// navarchd, and Envoy's /clusters. Read parses one dump as a whole. Stream parses several config_dumps, one resource at
// a time.
//
// Owns: nothing.
// Reads: untrusted bytes.
// Never: fails because one resource does not decode; opens a socket or a file.
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

// Dump has the resources of one proxy.
type Dump struct {
	// Resources has a list of resources for each xds.Type, in the order of the dump.
	Resources [xds.NumTypes][]Resource
	// Has is true for each xds.Type that has a section in the dump, even an empty one. Envoy omits endpoints unless the
	// request has include_eds.
	Has [xds.NumTypes]bool
	// Node is the proxy's node, from the bootstrap section of the dump. It is zero if the dump lacks the section.
	Node Node
	// Hosts has the endpoints of Envoy's /clusters. It is nil if /clusters was not read.
	Hosts []Host
	raw   bool // resources are not decoded
}

// Node is the identity that a proxy claims in its bootstrap. A field is empty if the dump lacks it.
type Node struct {
	ID string // usually sidecar~IP~NAME.NAMESPACE~DOMAIN or router~IP~NAME.NAMESPACE~DOMAIN
	// Namespace is the value of NAMESPACE in the metadata. If the metadata lacks NAMESPACE, Namespace is the text after
	// the last dot in the third part of an ID with four parts.
	Namespace string
	Account   string // name of the service account (SERVICE_ACCOUNT of the metadata)
	// Closing lists the policies that select the proxy and cannot be enforced, as "Kind namespace/name". Only dumps of
	// navarchd have it.
	Closing []string
	// Ports lists the ports of the services in front of a gateway. Only dumps of navarchd have it.
	Ports []inspect.ServicePort
}

// Addresses returns the IP address in the node's ID as a list of one element. The address is the second part of the ID,
// unverified. Addresses returns nil if the ID does not have four parts, or if the second part is empty.
func (n Node) Addresses() []string {
	if parts := strings.Split(n.ID, "~"); len(parts) == 4 && parts[1] != "" {
		return parts[1:2]
	}
	return nil
}

// Resource is one resource of a dump.
type Resource struct {
	Type xds.Type
	// Name is empty if neither the resource, nor its entry in the dump, nor the refused version states a name.
	Name    string
	Version string // version_info of the version in Raw; empty: unknown
	// Raw is the JSON of the resource. Raw is nil if the dump lacks the JSON. Usually the proxy then has no version of
	// the resource, because every version was refused or is withheld.
	Raw json.RawMessage
	// Message is Raw decoded, without parts that this program does not know. It is nil if Raw is nil or cannot be
	// decoded, and for resources of a Stream.
	Message proto.Message
	// Problem is the error of decoding Raw. It is nil if Raw was decoded, or if no decoding was tried.
	Problem error
	// Where is the state of the resource in Envoy's dump: "static", "warming", "draining"; empty: active.
	Where string
	// Failure describes the newest version if the proxy refused this version, or if navarchd withholds it. In all other
	// cases Failure is nil. If the dump has several states of one listener, only the first of them has the Failure.
	Failure *Failure
}

// Failure is a version of a resource that the proxy refused, or that navarchd withholds from the proxy.
type Failure struct {
	Withheld bool   `json:"withheld,omitempty"` // navarchd withholds the version; false: the proxy refused it
	Version  string `json:"version,omitempty"`  // version_info of the refused or withheld version; empty: unknown
	// Details is the proxy's or navarchd's reason.
	Details string `json:"details"`
	Last    string `json:"last_update_attempt,omitempty"` // time of the refusal as in the dump, RFC 3339; empty: unknown
}

// Word returns "WITHHELD" if Withheld is true, else "REFUSED". f must not be nil.
func (f *Failure) Word() string {
	if f.Withheld {
		return "WITHHELD"
	}
	return "REFUSED"
}

// object is a JSON object with unparsed fields.
type object map[string]json.RawMessage

// field returns the field with a proto name, or with the corresponding proto JSON name. It returns nil if the object
// has neither.
func (o object) field(name string) json.RawMessage {
	if raw, ok := o[name]; ok {
		return raw
	}
	return o[camel(name)]
}

// camel converts a proto name of a field to its proto JSON name.
func camel(name string) string {
	first, rest, _ := strings.Cut(name, "_")
	for part := range strings.SplitSeq(rest, "_") {
		if part != "" {
			first += strings.ToUpper(part[:1]) + part[1:]
		}
	}
	return first
}

// text returns a string field, or "" if the field is missing or has another type.
func (o object) text(name string) (s string) {
	_ = json.Unmarshal(o.field(name), &s)
	return s
}

// object returns an object field, or nil if the field is missing or has another type.
func (o object) object(name string) (out object) {
	if json.Unmarshal(o.field(name), &out) != nil {
		return nil
	}
	return out
}

// list returns a field with a list of objects, or nil if the field is missing or has another type. An element of
// another type becomes nil.
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

// section describes the section of a resource type in a dump. The field message is the name of the section's proto
// message. The field lists has the lists of entries. The field body names the field of an entry that contains the
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

// Read parses Envoy's /config_dump, navarchd's /debug/config_dump or Envoy's /clusters?format=json. From /clusters it
// sets only Hosts, like ReadClusters. Unknown sections are skipped. A resource that cannot be decoded has its Problem
// set. Read fails only if raw has another form. Read does not keep raw.
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

// nodeOf parses the node of a bootstrap.
func nodeOf(node object) Node {
	metadata := node.object("metadata")
	n := Node{ID: node.text("id"), Namespace: metadata.text("NAMESPACE"), Account: metadata.text("SERVICE_ACCOUNT")}
	// Fields of another type are ignored.
	_ = json.Unmarshal(metadata.field(inspect.ClosingMetadata), &n.Closing)
	_ = json.Unmarshal(metadata.field(inspect.PortsMetadata), &n.Ports)
	if parts := strings.Split(n.ID, "~"); len(parts) == 4 && n.Namespace == "" {
		n.Namespace = parts[2][strings.LastIndexByte(parts[2], '.')+1:]
	}
	return n
}

// add adds the resources of one entry. The entry of a listener may have several resources: active, warming and
// draining. A failure belongs to the first added resource.
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

// nameOf returns the name in the JSON of a resource, or "" if the JSON has no name.
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

// failureOf returns the error state of an entry, and the JSON of the refused resource. Without an error state, both
// results are nil.
func failureOf(e object) (*Failure, json.RawMessage) {
	state := e.object("error_state")
	if state == nil {
		return nil, nil
	}
	f := &Failure{Version: state.text("version_info"), Details: state.text("details"), Last: state.text("last_update_attempt")}
	f.Withheld = strings.HasPrefix(f.Details, inspect.WithheldDetails)
	return f, state.field("failed_configuration")
}
