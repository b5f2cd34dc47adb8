// Package accesslog parses lines of Istio's default access log, and explains Envoy's response flags.
//
// Owns: nothing.
// Reads: untrusted text.
// Never: accepts a line with a wrong number of fields, or with an invalid request or status.
package accesslog

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// longest is the maximum length of a line, in bytes. Envoy refuses requests with more than 60 KiB of headers.
const longest = 128 << 10

// fields is the number of fields of the format.
const fields = 22

// Entry is a decoded line of the log. A text is empty, and Flags is nil, if the line has "-" for it.
type Entry struct {
	Method, Path, Protocol string
	Status                 int      // HTTP status; 0: no response
	Flags                  []string // names of response flags, such as UF
	// Details is the reason for the status, Termination the reason why the connection ended, and Failure the error of
	// the connection to the endpoint, each in Envoy's words.
	Details, Termination, Failure string
	ForwardedFor, Authority       string // the headers X-Forwarded-For and :authority
	Upstream, Cluster             string // IP:PORT of the endpoint, and its cluster
	// Local is the IP:PORT to which the client connected, and Remote the IP:PORT of the client.
	Local, Remote     string
	ServerName, Route string // SNI, and the name of the route
}

// Parse decodes a line of Istio's default text format (istio: pilot/pkg/model/telemetry_logging.go). It ignores white
// space around the line. For a text that does not have this format, it returns the zero Entry and an error that names
// the field, or the line.
func Parse(line string) (Entry, error) {
	line = strings.TrimSpace(line)
	if len(line) > longest {
		return Entry{}, fmt.Errorf("line: %d bytes, want at most %d", len(line), longest)
	}
	all, err := split(line)
	if err != nil {
		return Entry{}, err
	}
	if len(all) != fields {
		return Entry{}, fmt.Errorf("line: %d fields, want the %d of Istio's default format", len(all), fields)
	}
	for i, text := range all {
		if text == "-" {
			all[i] = ""
		}
	}
	e := Entry{Details: all[4], Termination: all[5], Failure: all[6], ForwardedFor: all[11], Authority: all[14],
		Upstream: all[15], Cluster: all[16], Local: all[18], Remote: all[19], ServerName: all[20], Route: all[21]}
	request := strings.Split(all[1], " ")
	if len(request) != 3 {
		return Entry{}, errors.New(`request: want "METHOD PATH PROTOCOL"`)
	}
	for i, into := range []*string{&e.Method, &e.Path, &e.Protocol} {
		if request[i] != "-" {
			*into = request[i]
		}
	}
	if e.Status, err = strconv.Atoi(all[2]); err != nil || e.Status < 0 || e.Status > 999 {
		return Entry{}, fmt.Errorf("status %q: want a number of three digits, or 0", all[2])
	}
	if all[3] != "" {
		e.Flags = strings.Split(all[3], ",")
	}
	return e, nil
}

// split divides a line into its fields: [TIME], "TEXT WITH BLANKS" and WORD.
func split(line string) (all []string, err error) {
	for rest := line; rest != ""; {
		end, open := " ", 0
		switch rest[0] {
		case '[':
			end, open = "]", 1
		case '"':
			end, open = `"`, 1
		}
		at := strings.Index(rest[open:], end)
		switch {
		case at < 0 && open > 0:
			return nil, fmt.Errorf("field %d: %s is missing", len(all)+1, end)
		case at < 0:
			return append(all, rest), nil
		}
		all = append(all, rest[open:open+at])
		rest = rest[open+at+len(end):]
		if open > 0 && rest != "" && rest[0] != ' ' {
			return nil, fmt.Errorf("field %d: a blank is missing after the field", len(all))
		}
		if open > 0 {
			rest = strings.TrimPrefix(rest, " ")
		}
		if len(all) > fields {
			return nil, fmt.Errorf("line: more than the %d fields of Istio's default format", fields)
		}
	}
	return all, nil
}

// Inbound reports whether the line is about a request that the workload received, according to Cluster. The line must
// be from the log of a workload's proxy.
func (e Entry) Inbound() bool {
	return strings.HasPrefix(e.Cluster, "inbound|") || e.Cluster == "InboundPassthroughCluster"
}

// Client returns the IP address of the client. The result is empty if Remote is not IP:PORT.
func (e Entry) Client() string {
	at, err := netip.ParseAddrPort(e.Remote)
	if err != nil {
		return ""
	}
	return at.Addr().String()
}

// Denied returns Envoy's name of the policy that denied the request, from Details or Termination. It is empty if
// neither names a policy.
func (e Entry) Denied() string {
	for _, text := range []string{e.Details, e.Termination} {
		if _, rest, is := strings.Cut(text, "rbac_access_denied_matched_policy["); is {
			return strings.TrimSuffix(rest, "]")
		}
	}
	return ""
}

// Flag is a response flag of Envoy: its short name, its meaning, and the place to examine.
type Flag struct{ Name, Means, Look string }

// Flags contains the response flags that Explain knows, sorted by name. Callers must not change them. Source:
// https://www.envoyproxy.io/docs/envoy/latest/configuration/observability/access_log/usage
var Flags = []Flag{
	{"DC", "the client closed the connection", "the client's own timeout"},
	{"DF", "the DNS resolution of the endpoint failed", "the host of the ServiceEntry"},
	{"DI", "a fault injected a delay", "the VirtualService's fault.delay"},
	{"DO", "the load balancer dropped the request by its overload policy", "the endpoints' drop policy"},
	{"DPE", "the client violated the protocol", "the port's protocol, and whether the client speaks it"},
	{"DT", "the request lasted longer than its longest duration", "the route's maximum duration"},
	{"FI", "a fault injected a status", "the VirtualService's fault.abort"},
	{"IH", "a header that must be strict had a bad value", "the request's headers"},
	{"LH", "the local health check failed", "the workload's own health"},
	{"LR", "the proxy reset the connection", "the proxy's own log"},
	{"NC", "the route's cluster does not exist", "the subset and the port of the route's destination"},
	{"NFCF", "the configuration of a filter has not arrived", "the WasmPlugin, and whether its module can be downloaded"},
	{"NR", "no route, or no filter chain, matches", "host, port and path of the request, and the VirtualServices of the host"},
	{"OM", "the proxy is overloaded", "the proxy's memory"},
	{"RL", "a rate limit refused the request", "the rate limits of the EnvoyFilters"},
	{"RLSE", "the rate limit service failed", "the service of rate limits"},
	{"SI", "the stream was idle for too long", "the timeouts of the route and of the mesh"},
	{"UAEX", "the authorization service denied the request", "the CUSTOM policy and its provider"},
	{"UC", "the endpoint closed the connection", "the application's timeout of idle connections"},
	{"UF", "the connection to the endpoint failed", "the transport failure: port, network policy, or TLS that does not fit"},
	{"UH", "no endpoint is healthy", "the Service's endpoints, and outlierDetection of the DestinationRule"},
	{"UMSDR", "the request lasted longer than the longest duration of a stream", "the route's timeout"},
	{"UO", "a circuit breaker is open", "connectionPool of the DestinationRule"},
	{"UPE", "the endpoint violated the protocol", "the port's protocol, and whether the application speaks it"},
	{"UR", "the endpoint reset the stream", "the application"},
	{"URX", "all retries, or connection attempts, were spent", "the flags of the attempts, and retries of the VirtualService"},
	{"UT", "the endpoint did not answer in time", "timeout of the VirtualService"},
}

// Explain returns the response flag with the given name, which must be in upper case. It returns false for any other
// text.
func Explain(name string) (Flag, bool) {
	at, found := slices.BinarySearchFunc(Flags, name, func(f Flag, name string) int { return strings.Compare(f.Name, name) })
	if !found {
		return Flag{}, false
	}
	return Flags[at], true
}
