package functions

import "github.com/fencepost/fencepost/shared/web"

// optional is a text that a body may leave out. One that is there says something, so it is
// not empty.
type optional struct {
	text  string
	given bool
}

// UnmarshalText takes any text; [optional.of] judges it.
func (o *optional) UnmarshalText(text []byte) error {
	o.text, o.given = string(text), true
	return nil
}

// of is the text of the field; "" where it was left out.
func (o optional) of(field string) (string, error) {
	if o.given && o.text == "" {
		return "", web.FieldProblem(field, "is empty: give it a value, or leave it out")
	}
	return o.text, nil
}
