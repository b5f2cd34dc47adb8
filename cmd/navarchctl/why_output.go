package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/accesslog"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/walk"
)

// outcomes maps outcomes to their words in -o json and in the test cases of the command test.
var outcomes = map[walk.Outcome]string{walk.Unserved: "unserved", walk.Closed: "closed", walk.Waiting: "waiting",
	walk.Answered: "answered", walk.Forwarded: "forwarded"}

// walked is the output of -o json for a request that is followed through one proxy.
type walked struct {
	Outcome string `json:"outcome"`
	Status  int    `json:"status,omitempty"`
	// GRPC is the gRPC status that a gRPC client gets instead of Status.
	GRPC    *int   `json:"grpc_status,omitempty"`
	Summary string `json:"summary"`
	// Confidence is certain, likely or possible. Doubts are the reasons why the confidence is not greater.
	Confidence string   `json:"confidence"`
	Doubts     []string `json:"doubts,omitempty"`
	Policy     string   `json:"policy,omitempty"`
	Refusal    string   `json:"refusal,omitempty"` // the policies that refuse the request
	// Problems are known problems of the objects that decide, as "Kind namespace/name field: message".
	Problems []string      `json:"problems,omitempty"`
	Steps    []walkedStep  `json:"steps"`
	To       []destination `json:"to,omitempty"`
	Mirrors  []destination `json:"mirrors,omitempty"`
}

type walkedStep struct {
	Type     string `json:"type,omitempty"`
	Resource string `json:"resource,omitempty"`
	Text     string `json:"text"`
	// Passed are the routes before the selected one, at most 20, with the reason why each does not match.
	Passed     []passedRoute `json:"passed,omitempty"`
	MorePassed int           `json:"more_passed,omitempty"` // number of further routes
}

type passedRoute struct {
	Route string `json:"route,omitempty"`
	Index int    `json:"index"` // among the routes of the virtual host
	Why   string `json:"why"`
}

type destination struct {
	Cluster   string   `json:"cluster"`
	Weight    uint32   `json:"weight,omitempty"`
	Endpoints []string `json:"endpoints,omitempty"`
	// Ejected are the endpoints to which Envoy sends nothing at present. If EjectedKnown is false, they are unknown.
	Ejected      []string `json:"ejected,omitempty"`
	EjectedKnown bool     `json:"ejected_known"`
	TLS          string   `json:"tls,omitempty"`
}

func walkOf(r walk.Result) walked {
	out := walked{Outcome: outcomes[r.Outcome], Status: r.Status, Summary: r.Summary(),
		Confidence: r.Confidence.String(), Doubts: r.Doubts, Policy: r.Policy, To: destinations(r.To), Mirrors: destinations(r.Mirrors)}
	if r.GRPC != nil {
		code := int(*r.GRPC)
		out.GRPC = &code
	}
	if r.Refusal != nil {
		out.Refusal = r.Refusal.String()
	}
	for _, s := range r.Steps {
		step := walkedStep{Resource: s.Resource, Text: s.Text, MorePassed: s.MorePassed}
		for _, p := range s.Passed {
			step.Passed = append(step.Passed, passedRoute(p))
		}
		if s.Resource != "" {
			step.Type = s.Type.Noun()
		}
		out.Steps = append(out.Steps, step)
	}
	return out
}

func destinations(all []walk.Destination) (out []destination) {
	for _, d := range all {
		out = append(out, destination{d.Cluster, d.Weight, d.Endpoints, d.Ejected, d.Observed, d.TLS.Mode})
	}
	return out
}

// called is the output of -o json for a request that is followed through the proxies of client and server.
type called struct {
	Client     walked   `json:"client"`
	TLS        []string `json:"tls,omitempty"`
	Cluster    string   `json:"cluster,omitempty"`
	Endpoint   string   `json:"endpoint,omitempty"`
	Server     *walked  `json:"server,omitempty"`
	Summary    string   `json:"summary"`
	Confidence string   `json:"confidence"`
	Doubts     []string `json:"doubts,omitempty"`
}

func callOf(c walk.Call) called {
	level, doubts := c.Confidence()
	out := called{Client: walkOf(c.Client), TLS: c.TLS, Cluster: c.Cluster, Endpoint: c.Endpoint, Summary: c.Summary(),
		Confidence: level.String(), Doubts: doubts}
	if c.Server != nil {
		server := walkOf(*c.Server)
		out.Server = &server
	}
	return out
}

// explainFlags prints the flags of --flags. With -o json or yaml and --host it prints nothing, because the output is
// then about the request only.
func (q *question) explainFlags(cmd *cobra.Command) error {
	w := cmd.OutOrStdout()
	if q.host != "" && q.format != short {
		w = io.Discard
	}
	err := printFlags(w, strings.Split(q.flags, ","))
	if q.host != "" && err == nil {
		_, err = fmt.Fprintln(w)
	}
	return err
}

// printFlags prints a line for each response flag. A flag that Envoy does not have is an error.
func printFlags(w io.Writer, names []string) error {
	var table [][]string
	for _, name := range names {
		name = strings.ToUpper(strings.TrimSpace(name))
		f, known := accesslog.Explain(name)
		if !known {
			return fmt.Errorf("%q is no response flag of Envoy", name)
		}
		table = append(table, []string{f.Name, f.Means, "look at " + f.Look})
	}
	return show.Table(w, table)
}

// explainLog explains the access log line of --log. If flags name a proxy, it also follows the request of the line.
// With -o json or yaml it only follows the request, and fails if no flag names a proxy.
func (q *question) explainLog(cmd *cobra.Command) error {
	e, err := accesslog.Parse(q.log)
	if err != nil {
		return fmt.Errorf("--log: %w", err)
	}
	if q.format == short {
		if err := printEntry(cmd.OutOrStdout(), e); err != nil {
			return err
		}
	}
	if q.from+q.to == "" && !q.local() && q.offline.configDir == "" {
		if q.format != short {
			return fmt.Errorf("--log with -o %s prints how the request is followed: name a proxy by --from or --to", q.format)
		}
		return nil
	}
	if e.Method == "" {
		return fmt.Errorf("--log: the line describes a connection without HTTP: use %s", commandLine(cmd, q.connection(e)))
	}
	if e.Inbound() && q.from != "" {
		return errors.New("--log: the line describes a request that the workload received: name its proxy with --to instead of --from")
	}
	request, err := requestOf([]string{e.Method, "http://" + e.Authority + e.Path}, e.Local)
	if err != nil {
		return fmt.Errorf("--log: %w", err)
	}
	if err := q.client.apply(cmd, &request); err != nil {
		return err
	}
	request.From = cmp.Or(request.From, e.Client())
	if e.ForwardedFor != "" {
		request.Headers["x-forwarded-for"] = e.ForwardedFor
	}
	return q.follow(cmd, request)
}

// connection returns the words of the command why that follows the connection of a log line through the same proxies.
func (q *question) connection(e accesslog.Entry) []string {
	words := []string{"why"}
	for _, flag := range [][2]string{{"--from", q.from}, {"--to", q.to}, {"--envoy", q.envoy}, {"--file", q.file}} {
		if flag[1] != "" {
			words = append(words, flag[0], flag[1])
		}
	}
	if at := cmp.Or(e.Local, "IP:PORT"); e.ServerName == "" {
		words = append(words, "tcp://"+at)
	} else {
		words = append(words, "tls://"+e.ServerName, "--address", at)
	}
	return words
}

// printEntry prints the fields of a log line that are not empty, and explains its flags.
func printEntry(w io.Writer, e accesslog.Entry) error {
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(w, "%-10s %s\n", name, show.Printable(text))
		}
	}
	line("request", strings.TrimSpace(e.Method+" "+e.Authority+e.Path))
	line("status", fmt.Sprint(e.Status))
	line("details", e.Details)
	line("ended", e.Termination)
	line("failure", e.Failure)
	line("cluster", e.Cluster)
	line("endpoint", e.Upstream)
	line("route", e.Route)
	if by := e.Denied(); by != "" {
		line("denied", "by "+walk.RuleText(by))
	}
	if e.Status == 503 && len(e.Flags) == 0 && e.Upstream != "" {
		line("answer", "of the application: the proxy states no flag")
	}
	if len(e.Flags) > 0 {
		if err := printFlags(w, e.Flags); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}
