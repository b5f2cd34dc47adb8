package ingest

import (
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// RecordsAndRefusals returns the problems for which the webhook refuses an object, and the records of the object all
// the same.
func TestRecordsAndRefusals(t *testing.T) {
	refusing := put(t, strings.Replace(vs("a", "1s"), "hosts: [a]", "hosts: [a, a]", 1))
	records, problems, refused := RecordsAndRefusals([]object.Event{put(t, svc), refusing}, normal.Options{})
	if len(records) != 2 {
		t.Errorf("records: %v", records)
	}
	if all := refused[refusing.ID]; len(all) != 1 || all[0].Severity != problem.Warning || !slices.Contains(problems, all[0]) {
		t.Errorf("refused for %v; problems %v", all, problems)
	}
	if all := refused[parse(t, svc).ID]; len(all) > 0 {
		t.Errorf("the Service is refused for %v", all)
	}
}
