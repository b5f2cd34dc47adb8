package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// The protocol between runtimes and plugins (https://www.cni.dev/docs/spec/): a command in the environment, a
// configuration on standard input, and a result or an error on standard output.

// versions are the supported versions of the specification; the plugin behaves the same in all of them.
var versions = []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// Codes of errors (section "Error").
const (
	codeEnvironment = 4
	codeIO          = 5
	codeDecode      = 6
	codeConfig      = 7
	codeAgain       = 11  // the runtime should retry
	codeRules       = 100 // our own code: the rules could not be applied
)

// failure is an error of the protocol.
type failure struct {
	Version string `json:"cniVersion"`
	Code    int    `json:"code"`
	Message string `json:"msg"`
	Details string `json:"details,omitempty"`
}

func (f *failure) Error() string { return f.Message + ": " + f.Details }

// fail returns a failure; a failure in err is returned unchanged.
func fail(code int, message string, err error) *failure {
	f := &failure{Code: code, Message: message}
	if err != nil {
		f.Details = err.Error()
	}
	return f
}

// configuration is the plugin's configuration from standard input.
type configuration struct {
	Version    string          `json:"cniVersion"`
	Name       string          `json:"name"`
	Type       string          `json:"type"`
	Previous   json.RawMessage `json:"prevResult,omitempty"`
	Kubernetes settings        `json:"kubernetes"`
}

// settings are the plugin's own part of the configuration.
type settings struct {
	Kubeconfig        string   `json:"kubeconfig"`
	ExcludeNamespaces []string `json:"excludeNamespaces,omitempty"`
}

// maxConfiguration is the limit of the configuration in bytes.
const maxConfiguration = 1 << 20

func readConfiguration(r io.Reader) (configuration, *failure) {
	var c configuration
	text, err := io.ReadAll(io.LimitReader(r, maxConfiguration+1))
	if err != nil {
		return c, fail(codeIO, "standard input", err)
	}
	if len(text) > maxConfiguration {
		return c, fail(codeDecode, "configuration", fmt.Errorf("more than %d bytes", maxConfiguration))
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fail(codeDecode, "configuration", err)
	}
	if !slices.Contains(versions, c.Version) {
		return c, &failure{Code: 1, Message: fmt.Sprintf("version %.20q of CNI", c.Version),
			Details: "want one of " + strings.Join(versions, ", ")}
	}
	return c, nil
}

// request is a runtime's request.
type request struct {
	command, netns string
	args           map[string]string
}

// environment reads a request from the environment.
func environment(getenv func(string) string) request {
	r := request{command: getenv("CNI_COMMAND"), netns: getenv("CNI_NETNS"), args: map[string]string{}}
	for pair := range strings.SplitSeq(getenv("CNI_ARGS"), ";") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			r.args[k] = v
		}
	}
	return r
}
