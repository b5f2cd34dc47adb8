package main

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/walk"
	"navarch.io/navarch/store/model"
)

// problemsOf returns the problems of objects, as "Kind namespace/name field: message", each once. They come from
// --config-dir, or from the control plane that was asked for the proxy. For a proxy from an Envoy or a dump, and if the
// control plane does not answer, the result is nil. The problems only explain a result, so a failure is not an error.
func (q *walks) problemsOf(cmd *cobra.Command, s *subject, objects []string) (lines []string) {
	if len(objects) == 0 {
		return nil
	}
	add := func(object, field, message string) {
		line := strings.TrimSpace(object+" "+field) + ": " + message
		if slices.Contains(objects, object) && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	for _, p := range s.problems {
		add(p.ID.String(), p.Field, p.Message)
	}
	if s.asked == "" {
		return lines
	}
	from := q.source // a copy, because this source is closed below
	defer from.close()
	if answer, err := from.problems(cmd.Context(), url.Values{"object": {strings.Join(objects, ",")}}); err == nil {
		for _, p := range answer.Items {
			add(p.Object, p.Field, p.Message)
		}
	}
	return lines
}

// brokenObjects returns the objects whose problems may explain a result, as "Kind namespace/name". They are the
// policies that cannot be enforced, and the Secrets and ConfigMaps that could provide the secrets which the proxy
// lacks.
func brokenObjects(s *subject, r walk.Result) (objects []string) {
	if r.Refusal != nil {
		objects = append(objects, r.Refusal.Closing...)
	}
	for _, resource := range r.Lacks {
		ref, isMap := access.ConfigMap(resource)
		if isMap {
			objects = append(objects, "ConfigMap "+ref.Namespace+"/"+ref.Name)
			continue
		}
		ref, ok := access.ParseName(resource)
		if namespace := cmp.Or(ref.Namespace, s.namespace); ok && namespace != "" {
			objects = append(objects, "Secret "+namespace+"/"+ref.Name)
			if short, is := strings.CutSuffix(ref.Name, model.AuthoritiesSuffix); is {
				objects = append(objects, "Secret "+namespace+"/"+short)
			}
		}
	}
	return objects
}
