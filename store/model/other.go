package model

import (
	"cmp"
	"fmt"
	"slices"
)

// Other is an object that a message about another object names. Some readers of the message see only one namespace
// (Messages).
type Other struct {
	Key      Key
	ExportTo []string // as in the record; empty: every namespace sees the object
	Text     string   // name in messages; empty: Key
	Hidden   string   // name for readers who may not see the object; empty: hiddenName
}

// hiddenName stands for objects that a reader may not see.
const hiddenName = "an object of another namespace"

// OtherOf returns the object of a record. Objects of kinds without exportTo are visible to every namespace.
func OtherOf(r Record) Other {
	o := Other{Key: r.Meta().Key}
	switch r := r.(type) {
	case *Service: // an empty list means that no other namespace sees the service
		o.ExportTo = append([]string{"~"}, r.Spec.GetExportTo()...)
	case *VirtualService:
		o.ExportTo = r.Spec.GetExportTo()
	case *DestinationRule:
		o.ExportTo = r.Spec.GetExportTo()
	}
	return o
}

// OlderOf returns the object of a record, which messages call the older one.
func OlderOf(r Record) Other {
	o := OtherOf(r)
	o.Text, o.Hidden = "the older "+o.Key.String(), "an older object of another namespace"
	return o
}

// String returns the name for readers who see all objects.
func (o Other) String() string { return cmp.Or(o.Text, o.Key.String()) }

// visible reports whether a namespace sees the object.
func (o Other) visible(namespace string) bool {
	return o.Key.Namespace == namespace || len(o.ExportTo) == 0 || Exported(o.ExportTo, o.Key.Namespace, namespace)
}

// Exported reports whether an exportTo list names the namespace viewer. "." stands for owner, the namespace of the
// object. It is false for an empty list.
func Exported(exportTo []string, owner, viewer string) bool {
	return slices.ContainsFunc(exportTo, func(e string) bool { return e == "*" || e == viewer || e == "." && owner == viewer })
}

// Messages formats a message about an object of a namespace. The result shown is for readers of that namespace.
// Arguments of type Other that are not visible there appear with their Hidden name. The result whole has all names, for
// readers who see all objects. It is empty if it would equal shown.
func Messages(namespace, format string, args ...any) (shown, whole string) {
	whole = fmt.Sprintf(format, args...)
	var hidden []any
	for i, arg := range args {
		if o, is := arg.(Other); is && !o.visible(namespace) {
			if hidden == nil {
				hidden = slices.Clone(args)
			}
			hidden[i] = cmp.Or(o.Hidden, hiddenName)
		}
	}
	if hidden == nil {
		return whole, ""
	}
	return fmt.Sprintf(format, hidden...), whole
}
