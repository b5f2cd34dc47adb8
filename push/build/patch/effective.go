package patch

import (
	"slices"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// lists are the lists of patches that Effective draws with; weak, so nothing is held once it has drawn.
var lists intern.Table[model.Patch]

// VersionOf is what draw of Effective returns of a resource. The error is passed on.
func VersionOf(r *xds.Resource, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return r.Version, nil
}

// Effective is those of the patches of a Spec that change what is drawn of it: by each one, it is another than with those before it alone, or than with
// all others. One that would make what is there already changes nothing. draw gives the version of what is drawn with some of the patches; its error
// counts as a version of its own. It draws once more than there are patches, and once for each that seems to change nothing.
func Effective(patches intern.List[model.Patch], draw func(intern.List[model.Patch]) (version string, err error)) (effective []model.Patch) {
	version := func(some []model.Patch) string {
		v, err := draw(lists.List(some...))
		if err != nil {
			return "error: " + err.Error()
		}
		return v
	}
	all := patches.All()
	if len(all) == 0 {
		return nil
	}
	before, with := version(nil), version(all)
	for i, p := range all {
		now := with
		if i < len(all)-1 {
			now = version(all[:i+1])
		}
		if now != before || version(slices.Delete(slices.Clone(all), i, i+1)) != with {
			effective = append(effective, p)
		}
		before = now
	}
	return effective
}
