package check

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// atOnce is the number of rights that are checked concurrently. listed is the maximum number of elements that the
// function some writes out.
const (
	atOnce = 8
	listed = 6
)

// ask checks rights, each by a call of the function in the parameter query. It adds one result for the required rights,
// and one result for each optional feature that lacks a right. If the API server fails, it adds only the result for
// that error (cannot). The parameter check is the subject of all results. If rights are missing, the results contain
// the text in the parameter advice.
func (k *checker) ask(ctx context.Context, check subject, all []question, advice string,
	query func(context.Context, question) (bool, error)) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	allowed := make([]bool, len(all))
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(atOnce)
	for i, q := range all {
		asking.Go(func() (err error) {
			allowed[i], err = query(ctx, q)
			return err
		})
	}
	if err := asking.Wait(); err != nil {
		k.cannot(check, err)
		return
	}
	var missing []string
	without := map[string][]string{}
	for i, q := range all {
		switch {
		case allowed[i]:
		case q.optional != "":
			without[q.optional] = append(without[q.optional], q.String())
		default:
			missing = append(missing, q.String())
		}
	}
	if len(missing) > 0 {
		k.add(check.count(len(missing)), Failure, "missing: "+some(missing), advice)
	} else {
		k.add(check.count(0), OK, fmt.Sprintf("%d rights checked, no required right is missing", len(all)), "")
	}
	for _, what := range sorted(without) {
		if k.Pre { // Kubernetes prevents granting rights that one does not have
			k.add(check.with(", for "+what).count(len(without[what])), Warning, "missing: "+some(without[what]), advice+", or do without")
		} else {
			k.add(check.with(", for "+what).count(len(without[what])), OK, "not granted, so the leader goes without: "+some(without[what]), "")
		}
	}
}

// some joins the first `listed` elements, and states the number of further elements.
func some(all []string) string {
	text := strings.Join(all[:min(len(all), listed)], "; ")
	if more := len(all) - listed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// sorted returns the keys of a map in ascending order.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
