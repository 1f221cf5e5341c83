"""The page's readers in the browser with the label files in tests/formats: its XML, its
encodings and its images.
"""

from tests.unit.page.corpus import CASES, assert_is_right, project_of

READ_ALL = """async (projects) => {
    const at = (name) => import(new URL(`ui/formats/${name}.js`, document.baseURI));
    const { readProject } = await at("formats");
    const { FormatError } = await at("project");
    const bytesOf = (content) => Uint8Array.from(atob(content), (character) => character.charCodeAt(0));
    const filesOf = (files) => files.map(({ path, content }) => ({ path, content: bytesOf(content) }));
    return Promise.all(projects.map(({ files, sizes }) => readProject(filesOf(files), sizes).catch((error) => {
        if (!(error instanceof FormatError)) throw error;
        return { error: error.message };
    })));
}"""


def test_label_files_are_read_right_in_the_browser(modules):
    results = modules.evaluate(READ_ALL, [project_of(path) for path in CASES.values()])
    assert len(results) == len(CASES) > 100
    for name, result in zip(CASES, results, strict=True):
        try:
            assert_is_right(name, result)
        except AssertionError as error:
            raise AssertionError(name) from error
