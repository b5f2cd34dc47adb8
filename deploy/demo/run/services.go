package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// appPort is the port of every app; its proxy forwards inbound requests to it.
const appPort = 9080

// workload is one Pod of the YAML: an app and its proxy, or a gateway.
type workload struct {
	pod, namespace, ip, account string
	labels                      map[string]string
	gateway                     bool // a proxy of type router, without an app
}

func (w workload) name() string { return w.labels["app"] }
func (w workload) version() string {
	if v := w.labels["version"]; v != "" {
		return v
	}
	return "v1"
}

// services is the content of the YAML, which decides what the demo starts.
type services struct {
	workloads []workload
	upstreams map[string]string // URL by short name, for every Service and ServiceEntry
	virtual   map[string]string // ClusterIP by full name of a Service
	outside   map[string]string // endpoint (ip:port) by short name of a ServiceEntry; the endpoint is an app without a proxy
}

// document has the fields of an object that the demo uses.
type document struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		Labels    map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		ServiceAccountName string `json:"serviceAccountName"`
		ClusterIP          string `json:"clusterIP"`
		Type               string `json:"type"`
		Containers         []struct {
			Args []string `json:"args"`
		} `json:"containers"`
		Hosts []string
		Ports []struct {
			Port   int
			Number int
		}
		Endpoints []struct {
			Address string
			Ports   map[string]int
		}
	} `json:"spec"`
	Status struct {
		PodIP string `json:"podIP"`
	} `json:"status"`
	Endpoints []struct {
		Addresses []string `json:"addresses"`
	} `json:"endpoints"`
}

var separator = regexp.MustCompile(`(?m)^---[ \t]*$`)

// readServices reads all YAML files below dir.
func readServices(dir string) (*services, error) {
	w := &services{upstreams: map[string]string{}, virtual: map[string]string{}, outside: map[string]string{}}
	err := eachDocument(dir, w.add)
	if err == nil && len(w.workloads) == 0 {
		err = fmt.Errorf("no Pod in %s", dir)
	}
	return w, err
}

func eachDocument(dir string, f func(document)) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, text := range separator.Split(string(b), -1) {
			var doc document
			if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			f(doc)
		}
		return nil
	})
}

func (w *services) add(d document) {
	switch d.Kind {
	case "Pod":
		account := d.Spec.ServiceAccountName
		if account == "" {
			account = "default"
		}
		gateway := len(d.Spec.Containers) > 0 && slices.Contains(d.Spec.Containers[0].Args, "router")
		w.workloads = append(w.workloads, workload{d.Metadata.Name, d.Metadata.Namespace, d.Status.PodIP, account, d.Metadata.Labels, gateway})
	case "Service":
		if len(d.Spec.Ports) > 0 && d.Spec.Type != "LoadBalancer" { // that is for callers from outside
			host := fmt.Sprintf("%s.%s.svc.cluster.local", d.Metadata.Name, d.Metadata.Namespace)
			w.upstreams[d.Metadata.Name] = fmt.Sprintf("http://%s:%d", host, d.Spec.Ports[0].Port)
			w.virtual[host] = d.Spec.ClusterIP
		}
	case "ServiceEntry":
		if len(d.Spec.Hosts) == 0 || len(d.Spec.Ports) == 0 {
			return
		}
		short, _, _ := strings.Cut(d.Spec.Hosts[0], ".")
		w.upstreams[short] = fmt.Sprintf("http://%s:%d", d.Spec.Hosts[0], d.Spec.Ports[0].Number)
		for _, e := range d.Spec.Endpoints {
			port := d.Spec.Ports[0].Number
			for _, p := range e.Ports {
				port = p
			}
			w.outside[short] = fmt.Sprintf("%s:%d", e.Address, port)
		}
	}
}

// of returns the workloads of an app, and of a version unless that is empty.
func (w *services) of(app, version string) []workload {
	var out []workload
	for _, one := range w.workloads {
		if one.name() == app && (version == "" || one.version() == version) {
			out = append(out, one)
		}
	}
	return out
}

// sliceOf returns the name of the EndpointSlice below dir that contains ip.
func sliceOf(dir, ip string) (string, error) {
	name := ""
	err := eachDocument(dir, func(d document) {
		for _, e := range d.Endpoints {
			if d.Kind == "EndpointSlice" && slices.Contains(e.Addresses, ip) {
				name = d.Metadata.Name
			}
		}
	})
	if err == nil && name == "" {
		err = fmt.Errorf("no EndpointSlice with %s", ip)
	}
	return name, err
}

var errNoObject = errors.New("no such object")

// editObject changes one object of the YAML below dir, and replaces its file atomically, as editors do.
func editObject(dir, kind, name string, change func(obj map[string]any) error) error {
	found := errNoObject
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" || found == nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		docs := separator.Split(string(b), -1)
		i := slices.IndexFunc(docs, func(text string) bool {
			var doc document
			return yaml.Unmarshal([]byte(text), &doc) == nil && doc.Kind == kind && doc.Metadata.Name == name
		})
		if i < 0 {
			return nil
		}
		var obj map[string]any
		if err := yaml.Unmarshal([]byte(docs[i]), &obj); err != nil {
			return err
		}
		if err := change(obj); err != nil {
			return fmt.Errorf("%s %s in %s: %w", kind, name, path, err)
		}
		text, err := yaml.Marshal(obj)
		if err != nil {
			return err
		}
		docs[i] = "\n" + string(text)
		found = nil
		return replaceFile(path, []byte(strings.Join(docs, "---")))
	})
	if err == nil && found != nil {
		err = fmt.Errorf("%s %s: %w", kind, name, found)
	}
	return err
}

func replaceFile(path string, b []byte) error {
	tmp := path + ".new" // no suffix .yaml, so it is not read
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// copyYAML copies the YAML files of one folder, without subfolders, to another.
func copyYAML(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil || len(files) == 0 {
		return errors.Join(err, fmt.Errorf("%d YAML files in %s", len(files), from))
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(f)), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}
