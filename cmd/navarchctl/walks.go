package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/dump"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/walk"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/object"
)

// walks reads the configuration of the proxies through which a command follows a request (a walk). The configuration
// comes from the control plane, from an Envoy, from a file with an Envoy's dump, or from a plan for a folder of YAML.
type walks struct {
	source
	offline offline
}

func (q *walks) bind(cmd *cobra.Command) {
	q.source.bind(cmd)
	f := cmd.PersistentFlags()
	f.StringVar(&q.offline.configDir, "config-dir", "", "Folder of Istio and Kubernetes YAML; a proxy is a file of an Envoy core.v3 Node.")
	f.StringVar(&q.offline.cluster, "cluster-id", "Kubernetes", "Name of the cluster to which the configuration belongs.")
	f.StringVar(&q.offline.domain, "domain", "cluster.local", "DNS domain of the cluster.")
	for _, flag := range []string{"server", "kubeconfig", "context", "envoy", "file"} {
		cmd.MarkFlagsMutuallyExclusive("config-dir", flag)
	}
}

// subject is a proxy with the data that a walk reads.
type subject struct {
	walk.Peer
	held     *walk.Messages
	dump     *dump.Dump    // nil with --config-dir
	asked    string        // NAME.NAMESPACE for which the control plane was asked; empty: it was not asked
	accounts []string      // SPIFFE IDs of service accounts; known only with --config-dir
	planner  *plan.Planner // of the folder; nil without --config-dir
	// namespace is the proxy's namespace; empty: unknown. problems has the problems of the objects in --config-dir.
	namespace string
	problems  []object.Problem
	ports     []inspect.ServicePort // of the services in front of a gateway
}

// address sets the address of a request that states no address. For Outbound, address looks for the host in the proxy's
// listeners. For Inbound, address takes the first address of the workload. An unknown address stays empty.
func (s *subject) address(direction walk.Direction, r *walk.Request) {
	switch {
	case r.Address != "":
	case direction == walk.Outbound:
		r.Address = walk.AddressOf(s.held, r.Name, r.Port)
	case len(s.Addresses) > 0:
		r.Address = s.Addresses[0]
	}
}

// local reports whether --envoy or --file is set. Each of these flags names the configuration of one proxy.
func (q *walks) local() bool { return q.envoy != "" || q.file != "" }

// proxy returns a proxy and its configuration. With --config-dir, the argument name is a file with the proxy's node.
// With --envoy or --file, proxy ignores name. Otherwise name is the proxy's name, or a file *.json with its dump.
func (q *walks) proxy(cmd *cobra.Command, name string) (*subject, error) {
	if q.offline.configDir != "" {
		return q.planned(name)
	}
	var names []string
	types := []xds.Type{xds.Cluster, xds.Listener, xds.Route, xds.Endpoint, xds.Secret}
	from := q.source // a copy, because read closes the connections of its source
	if strings.HasSuffix(name, ".json") && !q.local() {
		from, name = source{file: name}, "" // a dump of the proxy
	}
	if name != "" && !q.local() {
		names, types = append(names, name), nil // nil: all types, and the proxy's node
	} else if q.local() {
		name = ""
	}
	d, err := from.read(cmd.Context(), cmd.InOrStdin(), names, types)
	if err != nil && from.file != "" && !q.local() {
		return nil, fmt.Errorf("%w; if the file is a proxy's node, --config-dir must name the folder of the configuration", err)
	}
	if err != nil {
		return nil, err
	}
	held := ofDump(d)
	held.Close(d.Node.Closing)
	s := &subject{held: held, dump: d, asked: from.asked, namespace: d.Node.Namespace, ports: d.Node.Ports,
		Peer: walk.Peer{Held: held, Addresses: d.Node.Addresses()}}
	if d.Node.Namespace != "" && d.Node.Account != "" {
		s.Identity = held.Identity(d.Node.Namespace, d.Node.Account)
	}
	return s, nil
}

// planned plans the configuration in --config-dir for the proxy whose node is in a file.
func (q *walks) planned(file string) (*subject, error) {
	if file == "" {
		return nil, errors.New("--config-dir: --from or --to has to name the file of a proxy's node")
	}
	from := q.offline
	from.proxy = file
	planner, handle, problems, err := from.plan()
	if err != nil {
		return nil, err
	}
	held, err := ofSet(inspect.Of(handle.Set()))
	if err != nil {
		return nil, err
	}
	for name, why := range planner.Lacking(handle) {
		held.Withhold(name, why)
	}
	var closing []string
	for _, key := range view.Closing(planner.Snapshot(), *handle.Node) {
		closing = append(closing, key.String())
	}
	held.Close(closing)
	s := &subject{held: held, planner: planner, problems: problems, Peer: walk.Peer{Held: held, Addresses: handle.Node.Addresses}}
	s.namespace = handle.Node.Namespace
	for _, port := range planner.ServicePorts(handle) {
		s.ports = append(s.ports, inspect.ServicePort(port))
	}
	if handle.Node.Account != "" {
		s.Identity = held.Identity(handle.Node.Namespace, handle.Node.Account)
	}
	s.accounts = accountsIn(planner.Snapshot(), held)
	return s, nil
}

// ofDump returns the resources of a dump that are neither warming nor draining, and the reasons why Secrets are
// missing.
func ofDump(d *dump.Dump) *walk.Messages {
	out := &walk.Messages{}
	for _, of := range d.Resources {
		for _, r := range of {
			switch {
			case r.Message != nil && r.Where != "draining" && r.Where != "warming":
				out.Add(r.Message)
			case r.Type != xds.Secret:
			case r.Failure != nil && r.Failure.Withheld:
				out.WithholdNewest(r.Name, strings.TrimPrefix(r.Failure.Details, inspect.WithheldDetails))
			case r.Failure != nil:
				out.Withhold(r.Name, "the proxy refused "+r.Name+": "+strings.TrimPrefix(r.Failure.Details, inspect.RefusedDetails))
			case r.Where == "warming":
				out.Withhold(r.Name, "the proxy has not received "+r.Name+" from the control plane")
			}
		}
	}
	return out
}

// ofSet decodes planned listeners, route configurations, clusters, assignments and Secrets.
func ofSet(all inspect.Resources) (*walk.Messages, error) {
	out := &walk.Messages{}
	for _, t := range []xds.Type{xds.Listener, xds.Route, xds.Cluster, xds.Endpoint, xds.Secret} {
		for _, r := range all[t] {
			m, err := inspect.Message(r)
			if err != nil {
				return nil, err
			}
			out.Add(m)
		}
	}
	return out, nil
}

// client contains the flags that describe the client of a request.
type client struct {
	headers   []string
	address   string // IP address of the client
	principal string // SPIFFE ID of --identity
	token     string // file of --jwt
	shows     string // value of --client-certificate: a URI, DNS name or subject in the certificate
}

func (c *client) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVarP(&c.headers, "header", "H", nil, "A header of the request, NAME: VALUE.")
	f.StringVar(&c.address, "client", "", "IP address of the client.")
	f.StringVar(&c.principal, "identity", "", "SPIFFE ID of the client, which then uses the mesh's mTLS.")
	f.StringVar(&c.token, "jwt", "", "File with a token, or with its claims as a JSON object; - is standard input. Tokens are not verified.")
	f.StringVar(&c.shows, "client-certificate", "",
		"The URI, DNS name or subject in a certificate of the client that a gateway's caCertificates accept.")
}

// apply sets the client, the time and the headers of a request. r.Headers must not be nil.
func (c *client) apply(cmd *cobra.Command, r *walk.Request) error {
	r.From, r.Identity, r.Certificate, r.Time = c.address, c.principal, c.shows, time.Now()
	if c.principal != "" && !strings.HasPrefix(c.principal, "spiffe://") {
		return fmt.Errorf("--identity %q: want spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT", c.principal)
	}
	if err := withHeaders(r, c.headers); err != nil {
		return err
	}
	if c.token == "" {
		return nil
	}
	text, err := readToken(c.token, cmd.InOrStdin())
	if err == nil {
		r.Headers["authorization"] = "Bearer " + text
	}
	return err
}

// withHeaders adds headers of the form "NAME: VALUE" to a request. The header host sets :authority.
func withHeaders(r *walk.Request, headers []string) error {
	for _, h := range headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return fmt.Errorf("--header %q: want NAME: VALUE", h)
		}
		if name = strings.ToLower(strings.TrimSpace(name)); name == "host" {
			name = ":authority"
		}
		r.Headers[name] = strings.TrimSpace(value)
	}
	return nil
}

// readToken returns the token in a file. If the file has claims (a JSON object), readToken returns an unsigned token
// with these claims. It does not verify tokens.
func readToken(file string, stdin io.Reader) (string, error) {
	raw, err := contentOf(file, stdin)
	if err != nil {
		return "", fmt.Errorf("--jwt: %w", err)
	}
	text := strings.TrimPrefix(strings.TrimSpace(string(raw)), "Bearer ")
	var claims map[string]any
	if strings.HasPrefix(text, "{") {
		if err := json.Unmarshal([]byte(text), &claims); err != nil {
			return "", fmt.Errorf("--jwt %s: claims: %w", file, err)
		}
		return walk.Unsigned(claims)
	}
	if _, err := walk.Claims(text); err != nil {
		return "", fmt.Errorf("--jwt %s: %w", file, err)
	}
	return text, nil
}
