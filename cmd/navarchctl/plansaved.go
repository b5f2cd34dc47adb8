package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/durable"
	"navarch.io/navarch/store/object"
)

// savedSchema is the version of the JSON form of a savedPlan.
const savedSchema = "navarch.io/saved-plan/v1"

// savedPlan is the content of the file of plan --out. apply --plan reads it.
type savedPlan struct {
	Schema  string            `json:"schema"`            // the constant savedSchema
	Scope   string            `json:"scope,omitempty"`   // the flag --scope
	Objects []json.RawMessage `json:"objects,omitempty"` // objects to apply
	Removed []json.RawMessage `json:"removed,omitempty"` // objects to delete
	Report  *preview.Report   `json:"report"`            // the answer that was printed
}

// save writes a plan to a file, which only its owner may read, or replaces the file. The error names the flag. It is an
// error if the file exists and is not a regular file.
func save(file, scope string, c change, r *preview.Report) error {
	if info, err := os.Lstat(file); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("--out: %s is no regular file", file)
	}
	s := savedPlan{Schema: savedSchema, Scope: scope, Report: r}
	for _, o := range c.put {
		s.Objects = append(s.Objects, o.JSON)
	}
	for _, o := range c.removed {
		s.Removed = append(s.Removed, o.JSON)
	}
	raw, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = durable.Replace(file, 0o600, func(w io.Writer) error {
			_, err := w.Write(append(raw, '\n'))
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}

// readSaved reads a saved plan and its objects. It fails if the file is not one of plan --out, or has no objects. The
// error names the flag and the file.
func readSaved(file string) (s savedPlan, c change, err error) {
	fail := func(err error) (savedPlan, change, error) {
		return s, c, fmt.Errorf("--plan: %s: %w", file, err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return s, c, fmt.Errorf("--plan: %w", err)
	}
	if err := json.Unmarshal(raw, &s); err != nil || s.Schema != savedSchema || s.Report == nil {
		return fail(fmt.Errorf("it is not a file of navarchctl plan --out (schema %s)", savedSchema))
	}
	if c.put, err = objectsOf(s.Objects); err == nil {
		c.removed, err = objectsOf(s.Removed)
	}
	if err == nil && len(c.put)+len(c.removed) == 0 {
		err = errors.New("it has no objects")
	}
	if err != nil {
		return fail(err)
	}
	return s, c, nil
}

// objectsOf parses objects in JSON.
func objectsOf(all []json.RawMessage) ([]*object.Object, error) {
	var documents [][]byte
	for _, one := range all {
		var line bytes.Buffer // a document per object: no line of it can begin with ---
		if err := json.Compact(&line, one); err != nil {
			return nil, err
		}
		documents = append(documents, line.Bytes())
	}
	return objectsIn("objects", bytes.Join(documents, []byte("\n---\n")))
}

// planned reads a saved plan, and requests the same plan again. It returns the objects of the plan if it still holds. A
// plan that does not hold is an exitError, which names what has changed.
func (w *waiter) planned(ctx context.Context, file string, warnings io.Writer) (c change, err error) {
	saved, c, err := readSaved(file)
	if err != nil {
		return c, err
	}
	again := planning{at: controlPlane{server: w.server, fallback: w.fallback, cluster: w.cluster}, scope: saved.Scope}
	defer again.at.close()
	now, err := again.live(ctx, &c, warnings)
	if err != nil {
		return c, fmt.Errorf("the plan cannot be compared, so nothing is applied: %w", err)
	}
	if stale := saved.Report.Stale(now); len(stale) > 0 {
		return c, exitError{exitStale, fmt.Sprintf("nothing is applied, because the plan of revision %d no longer holds at revision %d: %s;"+
			" plan again", saved.Report.Revision, now.Revision, show.Printable(strings.Join(stale, "; ")))}
	}
	if now.Refused() {
		return c, fmt.Errorf("an object of the plan is refused now, so nothing is applied: %s",
			show.Printable(strings.Join(refusals(now), "; ")))
	}
	if saved.Report.MoreTouched || len(saved.Report.Partial)+len(now.Partial) > 0 {
		fmt.Fprintln(warnings, "warning: not all objects behind what changes could be compared with the plan: there are too many,"+
			" or a replica did not answer")
	}
	return c, nil
}

// refusals returns "OBJECT: REASON" for each problem of the refused objects.
func refusals(r *preview.Report) (all []string) {
	for _, o := range r.Objects {
		if o.Act != preview.Refused {
			continue
		}
		for _, p := range o.Problems {
			all = append(all, strings.TrimSpace(o.Object+" "+p.Field)+": "+p.Message)
		}
	}
	return all
}

// removeOne deletes an object at the API server. An object that does not exist is no error. Errors name the object.
func removeOne(ctx context.Context, in *cluster.Cluster, o *object.Object) (on awaited, err error) {
	path, on, err := locate(ctx, in, o)
	if err != nil {
		return on, err
	}
	if err := in.API.Do(ctx, http.MethodDelete, path, nil, nil); err != nil && !apiserver.IsStatus(err, http.StatusNotFound) {
		return on, fmt.Errorf("%s: %w", on, err)
	}
	return on, nil
}

// locate returns the path of an object at the API server, and its name. Errors begin with the object's location in the
// files.
func locate(ctx context.Context, in *cluster.Cluster, o *object.Object) (path string, on awaited, err error) {
	on = awaited{kind: kindName{o.ID.Group, o.ID.Kind}, name: o.ID.Name}
	if on.namespace, _, err = metadataOf(o); err != nil {
		return "", on, fmt.Errorf("%s: %w", o.Location, err)
	}
	if on.namespace == "" {
		on.namespace = corev1.NamespaceDefault
	}
	path, namespaced, err := on.kind.path(ctx, in, o.Version, on.namespace, on.name)
	if err != nil {
		return "", on, fmt.Errorf("%s: %w", o.Location, err)
	}
	if !namespaced {
		on.namespace = ""
	}
	return path, on, nil
}
