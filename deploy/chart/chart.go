// Package chart runs Helm, at the versions that the repository pins, with the chart of this folder.
//
// Owns: nothing. Reads: the chart, .tools. Never: runs outside of tests and demos; uses a kubeconfig that it was not
// given.
package chart

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"navarch.io/navarch/deploy/testcluster/controlplane"
)

// Helm runs Helm commands against one cluster.
type Helm struct {
	// Dir is the folder of the chart.
	Dir string

	program, home, kubeconfig string
}

// NewHelm returns Helm 4 for the cluster of a kubeconfig; an empty path is for commands without a cluster. Helm's own
// files are below the folder home. The error reports that Helm is not built, or that the working directory is outside
// of the repository.
func NewHelm(home, kubeconfig string) (*Helm, error) { return newHelm("helm", home, kubeconfig) }

// NewHelm3 returns Helm 3, with the parameters and errors of NewHelm.
func NewHelm3(home, kubeconfig string) (*Helm, error) { return newHelm("helm3", home, kubeconfig) }

func newHelm(program, home, kubeconfig string) (*Helm, error) {
	tools, err := controlplane.Tools()
	if err != nil {
		return nil, err
	}
	h := &Helm{Dir: filepath.Join(filepath.Dir(tools), "deploy", "chart"),
		program: filepath.Join(tools, "bin", program), home: home, kubeconfig: kubeconfig}
	if _, err := os.Stat(h.program); err != nil {
		return nil, fmt.Errorf("run `make kube-tools`: %w", err)
	}
	return h, nil
}

// Run runs a command and returns its standard output. The error contains its standard error.
func (h *Helm) Run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, h.program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+h.kubeconfig, "HELM_CACHE_HOME="+h.home, "HELM_CONFIG_HOME="+h.home, "HELM_DATA_HOME="+h.home)
	var out, wrong bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &wrong
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, wrong.String())
	}
	return out.String(), nil
}

// Documents returns the YAML documents of a text, as `helm template` prints them; empty ones are left out.
func Documents(text string) (all []string) {
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		for line := range strings.Lines(document) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && line != "---" {
				all = append(all, document)
				break
			}
		}
	}
	return all
}
