package controlplane

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// auditPolicy makes the API server log the requests of the service account with the documented rights
// (deploy/testcluster/rights).
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ["system:serviceaccount:istio-system:navarchd"]}
- {level: None}
`

// auditFlags returns the flags of an API server with this policy.
func (c *ControlPlane) auditFlags() ([]string, error) {
	policy := filepath.Join(c.dir, "audit.yaml")
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + c.auditLog()}, os.WriteFile(policy, []byte(auditPolicy), 0o600)
}

func (c *ControlPlane) auditLog() string { return filepath.Join(c.dir, "audit.log") }

// Used returns the folder in which control planes record, when they end, the rights that were used. Each writes a file
// with lines of verb and group/resource/subresource, such as "list /services/" or "update
// networking.istio.io/virtualservices/status".
func Used(tools string) string { return filepath.Join(filepath.Dir(tools), "out", "rights") }

// noteUsed writes that file, if any right was used.
func (c *ControlPlane) noteUsed() error {
	log, err := os.Open(c.auditLog())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer log.Close()
	used := map[string]bool{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb, RequestURI string
			ObjectRef        *struct{ Resource, APIGroup, Subresource string }
			ResponseStatus   struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			continue // incomplete last line of a killed server
		}
		switch of := event.ObjectRef; {
		case event.ResponseStatus.Code == 403:
		case of == nil:
			path, _, _ := strings.Cut(event.RequestURI, "?")
			used[event.Verb+" "+path] = true
		default:
			used[fmt.Sprintf("%s %s/%s/%s", event.Verb, of.APIGroup, of.Resource, of.Subresource)] = true
		}
	}
	if err := lines.Err(); err != nil || len(used) == 0 {
		return err
	}
	folder := Used(c.options.Tools)
	text := strings.Join(slices.Sorted(maps.Keys(used)), "\n") + "\n"
	return errors.Join(os.MkdirAll(folder, 0o755),
		os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d-%s", os.Getpid(), port(c.address))), []byte(text), 0o644))
}
