package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/cmd/navarchctl/analyze"
	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// configured reads the configuration from a folder (--config-dir), or from the API server.
type configured struct {
	offline
	in cluster.Flags
}

func (c *configured) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	c.in.Bind(f)
	f.StringVar(&c.configDir, "config-dir", "", "Folder of Istio and Kubernetes YAML instead of the API server's objects.")
	f.StringVar(&c.cluster, "cluster-id", "Kubernetes", "Name of the cluster to which the configuration belongs.")
	f.StringVar(&c.domain, "domain", "cluster.local", "DNS domain of the cluster.")
}

// objects returns the objects that a control plane with the revision c.in.Revision reads. It prints a note for each
// skipped document.
func (c *configured) objects(ctx context.Context, notes io.Writer) ([]object.Event, error) {
	events, err := c.read(ctx, notes)
	if err != nil {
		return nil, err
	}
	for _, location := range c.skipped {
		fmt.Fprintln(notes, "note: "+show.Printable(location)+" is no object of Kubernetes, and is skipped")
	}
	return c.selected(events), nil
}

// notesProblems prints a note with the numbers of errors and warnings in a configuration, and the command that prints
// the problems. Without problems it prints nothing.
func (c *configured) notesProblems(cmd *cobra.Command, problems []object.Problem) {
	wrong := 0
	for _, p := range problems {
		if p.Severity == problem.Error {
			wrong++
		}
	}
	if len(problems) == 0 {
		return
	}
	text := "note: the configuration has " + show.Plural(len(problems)-wrong, "warning")
	if wrong > 0 {
		text = fmt.Sprintf("note: the configuration has %s, whose objects or parts are not served, and %s",
			show.Plural(wrong, "error"), show.Plural(len(problems)-wrong, "warning"))
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s prints them\n", text, commandLine(cmd, c.analysis()))
}

// analysis returns the words of the command that analyses the configuration of the folder, or of the cluster.
func (c *configured) analysis() []string {
	if c.configDir != "" {
		return []string{"analyze", "-f", c.configDir}
	}
	return []string{"analyze"}
}

// read reads all objects of the folder, or of the API server. It prints a note for each kind that could not be read
// from the API server. It is an error if neither a folder nor a kubeconfig is given.
func (c *configured) read(ctx context.Context, notes io.Writer) ([]object.Event, error) {
	if c.configDir != "" {
		events, _, err := c.events()
		return events, err
	}
	if !c.in.Given() {
		return nil, errors.New("where is the configuration? --config-dir DIR, or a kubeconfig (--kubeconfig)")
	}
	of, err := c.in.Open()
	if err != nil {
		return nil, err
	}
	now, err := analyze.Read(ctx, of.API, c.in.Namespace)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", of, err)
	}
	for _, kind := range slices.Sorted(maps.Keys(now.Unread)) {
		fmt.Fprintf(notes, "note: objects of kind %s were not read: %s\n", kind, show.Printable(now.Unread[kind]))
	}
	return now.Events, nil
}

// selected returns the events that a control plane with the revision c.in.Revision reads. It omits objects of
// namespaces that the mesh configuration's discoverySelectors do not select, except ConfigMaps. It also omits Istio's
// objects whose label istio.io/rev names another revision.
func (c *configured) selected(events []object.Event) []object.Event {
	var selectors []labels.Selector
	namespaces := map[string]labels.Set{}
	for _, e := range events {
		switch {
		case e.Op != object.Put:
		case e.ID.Kind == "Namespace":
			namespaces[e.ID.Name] = e.Object.Labels
		case e.ID.Kind == "ConfigMap" && e.ID.Name == c.meshName() && e.ID.Namespace == c.in.Namespace:
			selectors = selectorsOf(e.Object)
		}
	}
	return slices.DeleteFunc(slices.Clone(events), func(e object.Event) bool {
		if e.Op != object.Put {
			return false
		}
		if of, stated := e.Object.Labels["istio.io/rev"]; stated && ofIstio(e.ID.Group) && of != cmp.Or(c.in.Revision, "default") {
			return true
		}
		if len(selectors) == 0 || e.ID.Namespace == "" || e.ID.Kind == "ConfigMap" {
			return false
		}
		own := namespaces[e.ID.Namespace]
		return !slices.ContainsFunc(selectors, func(s labels.Selector) bool { return s.Matches(own) })
	})
}

// ofIstio reports whether an API group has Istio's kinds.
func ofIstio(group string) bool {
	return slices.Contains([]string{model.GroupNetworking, model.GroupSecurity, model.GroupTelemetry, model.GroupExtensions}, group)
}

// meshName returns the name of the ConfigMap with the mesh configuration.
func (c *configured) meshName() string {
	if c.in.Revision == "" || c.in.Revision == "default" {
		return "istio"
	}
	return "istio-" + c.in.Revision
}

// selectorsOf returns the valid discoverySelectors of the mesh configuration in a ConfigMap. It returns nil if the
// configuration is invalid.
func selectorsOf(o *object.Object) (all []labels.Selector) {
	var config struct{ Data map[string]string }
	var mesh struct {
		DiscoverySelectors []*metav1.LabelSelector `json:"discoverySelectors"`
	}
	if json.Unmarshal(o.JSON, &config) != nil || yaml.Unmarshal([]byte(config.Data["mesh"]), &mesh) != nil {
		return nil
	}
	for _, stated := range mesh.DiscoverySelectors {
		if s, err := metav1.LabelSelectorAsSelector(stated); err == nil {
			all = append(all, s)
		}
	}
	return all
}
