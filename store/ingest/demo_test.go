package ingest

import (
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/source/files"
)

// The demo's own files must have no problems: new users copy them.
func TestDemoFilesAreClean(t *testing.T) {
	events, problems, err := files.Read("../../deploy/demo/shop", "", nil)
	if err != nil || len(problems) > 0 {
		t.Fatalf("read: %v, problems %v", err, problems)
	}
	records, problems := Records(events, normal.Options{})
	for _, p := range problems {
		t.Errorf("problem: %v (%s)", p, p.Location)
	}
	count := map[model.Kind]int{}
	for _, r := range records {
		count[r.Meta().Key.Kind]++
	}
	for _, kind := range []model.Kind{model.KindMesh, model.KindService, model.KindServiceEntry, model.KindEndpoints,
		model.KindVirtualService, model.KindDestinationRule, model.KindSidecar, model.KindGateway} {
		if count[kind] == 0 {
			t.Errorf("the demo shows no %v", kind)
		}
	}
}
