package migrate

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	appsv1 "k8s.io/api/apps/v1"
	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// discovery is the name of istiod's container.
const discovery = "discovery"

// FromYAML classifies the settings in one or several YAML documents. A document without a kind contains Helm values.
// FromYAML uses Deployments with istiod's container (discovery) and IstioOperators, and ignores other objects. The
// settings are merged as by Merge. The result is nil if there are no settings. An error contains the number of the
// document that cannot be parsed, beginning with 1.
func FromYAML(text []byte) ([]Setting, error) {
	reader := k8syaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	var lists [][]Setting
	for n := 1; ; n++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return Merge(lists...), nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		var tree map[string]any
		if err := yaml.Unmarshal(document, &tree); err != nil {
			return nil, fmt.Errorf("document %d is no YAML of values or of an object: %w", n, err)
		}
		kind, isObject := tree["kind"].(string)
		switch {
		case !isObject:
			lists = append(lists, FromValues(tree))
		case kind == "Deployment":
			var d appsv1.Deployment
			if err := yaml.Unmarshal(document, &d); err != nil {
				return nil, fmt.Errorf("document %d: %w", n, err)
			}
			lists = append(lists, FromDeployment(&d))
		case kind == "IstioOperator":
			lists = append(lists, fromOperator(tree))
		}
	}
}

// FromDeployment classifies the arguments and environment variables of the container discovery. If the Deployment has
// no such container, the result is nil. For a variable that Kubernetes fills in, the setting keeps the reference to the
// source. The settings are merged as by Merge.
func FromDeployment(d *appsv1.Deployment) []Setting {
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name != discovery {
			continue
		}
		var env []Setting
		for _, e := range c.Env {
			one := Setting{Sort: Environment, Key: e.Name, Value: e.Value, raw: e.Value}
			if e.ValueFrom != nil {
				one.Value, one.raw = elsewhere, map[string]any{"name": e.Name, "valueFrom": e.ValueFrom}
			}
			env = append(env, one)
		}
		return Merge(fromArgs(c.Args), env)
	}
	return nil
}

// mostOfRelease is the maximum size in bytes of an unpacked Helm record.
const mostOfRelease = 32 << 20

// charts has the present and former names of istiod's chart.
var charts = map[string]bool{"istiod": true, "istio-discovery": true}

// FromRelease classifies the values that the operator gave a Helm release. The argument record is the value of the key
// "release" in the release's Secret: base64 of gzipped JSON. FromRelease returns false, without an error, if the chart
// of the release is not istiod's. It fails if the record is invalid or has more than 32 MiB of JSON.
func FromRelease(record []byte) ([]Setting, bool, error) {
	packed, err := base64.StdEncoding.DecodeString(string(record))
	if err != nil {
		return nil, false, fmt.Errorf("a release of Helm: %w", err)
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, false, fmt.Errorf("a release of Helm: %w", err)
	}
	var release struct {
		Config map[string]any
		Chart  struct{ Metadata struct{ Name string } }
	}
	if err := json.NewDecoder(io.LimitReader(unpacked, mostOfRelease)).Decode(&release); err != nil {
		return nil, false, fmt.Errorf("a release of Helm: %w", err)
	}
	if !charts[release.Chart.Metadata.Name] {
		return nil, false, nil
	}
	return FromValues(release.Config), true, nil
}
