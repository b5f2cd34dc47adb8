// Package scrape defines two texts that state where an application exposes its metrics. One is the annotation of a Pod
// that lists several targets (pages of metrics). The other is the environment variable by which sidecar injection
// passes the targets to the agent in the Pod.
//
// Owns: the syntax of both texts, and the list of ports of Istio's proxies and agents. Reads: nothing. Never: requests
// a target.
package scrape

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	// Annotation is the annotation of a Pod that lists targets as PORT:PATH, separated by commas.
	Annotation = "prometheus.istio.io/scrape-targets"
	// Variable is the environment variable that passes Settings to the agent, as JSON.
	Variable = "ISTIO_PROMETHEUS_ANNOTATIONS"

	defaultPort = 80
	defaultPath = "/metrics"
	maxTargets  = 16
)

// Settings are the values of a Pod's annotations for Prometheus: prometheus.io/scrape, prometheus.io/path,
// prometheus.io/port, and Annotation. An empty field means that there is no such annotation. Agents of older versions
// ignore Targets, and read Port and Path.
type Settings struct {
	Scrape  string   `json:"scrape"`
	Path    string   `json:"path"`
	Port    string   `json:"port"`
	Targets []Target `json:"targets,omitempty"`
}

// Target is one page of metrics of an application. The agent requests it from localhost.
type Target struct {
	Port uint16 `json:"port,string"`
	Path string `json:"path"` // path with its query, beginning with a slash
}

// String returns PORT:PATH, as in the annotation.
func (t Target) String() string { return fmt.Sprintf("%d:%s", t.Port, t.Path) }

// URL returns the address at which the agent requests the page.
func (t Target) URL() string { return fmt.Sprintf("http://localhost:%d%s", t.Port, t.Path) }

// reserved are ports of Istio's proxies and agents
// (https://istio.io/latest/docs/ops/deployment/application-requirements/#ports-used-by-istio). Targets must not use
// these ports. The agent's page would request itself, and Envoy's metrics are on the merged page already.
var reserved = map[uint16]string{
	15000: "Envoy's administration", 15001: "Envoy's outbound traffic", 15004: "the agent's debug pages", 15006: "Envoy's inbound traffic",
	15008: "HBONE",
	15020: "the agent's merged metrics", 15021: "the agent's readiness", 15053: "the agent's DNS", 15090: "Envoy's metrics",
}

// Own describes the use of a port that Istio's proxies and agents bind themselves. The result is empty for all other
// ports.
func Own(port uint16) string { return reserved[port] }

// Parse parses the value of Annotation. Empty parts and repeated targets are ignored. An empty path becomes /metrics,
// and a path without a slash at its beginning gets one. Without targets the result is nil. Errors: a port is not a
// number from 1 to 65535, a port is in use by the proxy or agent (Own), a path is invalid, or there are more than 16
// targets.
func Parse(text string) (all []Target, err error) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		port, path, _ := strings.Cut(part, ":")
		t := Target{Path: path}
		if t.Port, err = parsePort(port); err == nil {
			err = t.complete()
		}
		if err != nil {
			return nil, fmt.Errorf("%.100q: %w", part, err)
		}
		if all = appendNew(all, t); len(all) > maxTargets {
			return nil, fmt.Errorf("more than %d targets", maxTargets)
		}
	}
	return all, nil
}

// Format returns targets in the form of Annotation, which Parse accepts. The result is empty if there are no targets.
func Format(all []Target) string {
	var texts []string
	for _, t := range all {
		texts = append(texts, t.String())
	}
	return strings.Join(texts, ",")
}

// Read parses the value of Variable, and returns the pages that the agent merges. If Targets is empty, the only page is
// that of Port and Path (by default port 80 and /metrics), which are not checked against Own. The result is nil for an
// empty text, and if Scrape is "false". The ports in agentPorts are refused, because a page of the agent would request
// itself without end. Errors:
//
//   - The text is not JSON of Settings.
//   - Port is not a number from 1 to 65535.
//   - An element of Targets is invalid as in Parse, or there are more than 16.
//   - A port is in agentPorts.
func Read(text string, agentPorts ...uint16) (all []Target, err error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var s Settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, fmt.Errorf("want {\"scrape\": \"true\", \"port\": \"9090\", \"path\": \"/metrics\"}: %w", err)
	}
	if s.Scrape == "false" {
		return nil, nil
	}
	if len(s.Targets) > maxTargets {
		return nil, fmt.Errorf("more than %d targets", maxTargets)
	}
	for _, t := range s.Targets {
		if err := t.complete(); err != nil {
			return nil, err
		}
		all = appendNew(all, t)
	}
	if len(all) == 0 {
		t := Target{Port: defaultPort, Path: completePath(s.Path)}
		if s.Port != "" {
			if t.Port, err = parsePort(s.Port); err != nil {
				return nil, err
			}
		}
		all = []Target{t}
	}
	for _, t := range all {
		if slices.Contains(agentPorts, t.Port) {
			return nil, fmt.Errorf("port %d is the agent's own: the page would ask for itself", t.Port)
		}
	}
	return all, nil
}

// complete replaces an empty path, and adds a missing slash at its beginning. It returns an error if the target is
// unusable.
func (t *Target) complete() error {
	if of, is := reserved[t.Port]; is {
		return fmt.Errorf("port %d is that of %s", t.Port, of)
	}
	if t.Port == 0 {
		return errors.New("port 0: want a number from 1 to 65535")
	}
	t.Path = completePath(t.Path)
	outside := func(r rune) bool { return r <= ' ' || r > '~' }
	if _, err := url.Parse(t.URL()); err != nil || strings.ContainsFunc(t.Path, outside) {
		return fmt.Errorf("path %.100q: want printable ASCII characters that make a URL", t.Path)
	}
	return nil
}

func completePath(path string) string {
	switch {
	case path == "":
		return defaultPath
	case !strings.HasPrefix(path, "/"):
		return "/" + path
	default:
		return path
	}
}

func parsePort(text string) (uint16, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return 0, fmt.Errorf("port %.100q: want a number from 1 to 65535", text)
	}
	return uint16(port), nil
}

func appendNew(all []Target, t Target) []Target {
	if slices.Contains(all, t) {
		return all
	}
	return append(all, t)
}
