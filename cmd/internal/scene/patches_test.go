package scene

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// Each operation of an EnvoyFilter on each applyTo either changes the configuration of a scene's proxies when it is
// removed from the scene's objects, or the normaliser reports that the patch is ignored.
func TestEveryOperationIsShown(t *testing.T) {
	var mu sync.Mutex
	shown := map[string][]string{}
	t.Run("scenes", func(t *testing.T) {
		for _, name := range sceneNames(t) {
			text, err := os.ReadFile(filepath.Join("testdata", name+".txtar"))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(text, []byte("kind: EnvoyFilter")) {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for _, pair := range loadStruck(t, name).patches(t) {
					mu.Lock()
					shown[pair] = append(shown[pair], name)
					mu.Unlock()
				}
			})
		}
	})
	for _, applyTo := range networkingv1.EnvoyFilter_ApplyTo_name {
		for _, op := range networkingv1.EnvoyFilter_Patch_Operation_name {
			if applyTo == "INVALID" || op == "INVALID" {
				continue
			}
			pair := op + " " + applyTo
			switch said := saidIgnored(t, applyTo, op); {
			case said && len(shown[pair]) > 0:
				t.Errorf("%s: the normaliser says that the patch is ignored, and it is not in %v", pair, shown[pair])
			case !said && len(shown[pair]) == 0:
				t.Errorf("%s: no scene is another without it, and nobody says that the patch is ignored", pair)
			}
		}
	}
}

// patches returns operation and applyTo, such as "MERGE CLUSTER", of the patches whose removal changes the scene's
// output.
func (s *struckScene) patches(t *testing.T) (pairs []string) {
	t.Helper()
	for i, e := range s.objects {
		if e.Object == nil || e.ID.Kind != "EnvoyFilter" {
			continue
		}
		spec, _ := tree(t, e.Object.JSON)["spec"].(map[string]any)
		all, _ := spec["configPatches"].([]any)
		for j := range all {
			of, _ := all[j].(map[string]any)
			patch, _ := of["patch"].(map[string]any)
			pair := fmt.Sprint(patch["operation"], " ", of["applyTo"])
			if slices.Contains(pairs, pair) {
				continue
			}
			less := tree(t, e.Object.JSON)
			less["spec"].(map[string]any)["configPatches"] = slices.Delete(slices.Clone(all), j, j+1)
			next := *e.Object
			next.JSON = text(t, less)
			events := slices.Clone(s.objects)
			events[i].Object = &next
			if out, _, err := s.output(events, s.nodes); err != nil || !bytes.Equal(out, s.baseline) {
				pairs = append(pairs, pair)
			}
		}
	}
	return pairs
}

// saidIgnored reports whether the normaliser warns of the operation of such a patch.
func saidIgnored(t *testing.T, applyTo, op string) bool {
	t.Helper()
	id := object.ID{Group: "networking.istio.io", Kind: "EnvoyFilter", Namespace: "shop", Name: "x"}
	raw := fmt.Sprintf(`{"apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter", "metadata": {"namespace": "shop", "name": "x"}, "spec": {"configPatches": [{"applyTo": %q, "patch": {"operation": %q}}]}}`, applyTo, op)
	r := normal.New(normal.Options{}).Object(&object.Object{ID: id, Version: "v1alpha3", JSON: []byte(raw)}, nil)
	return slices.ContainsFunc(r.Problems, func(p object.Problem) bool { return p.Field == "spec.configPatches[0].patch.operation" })
}
