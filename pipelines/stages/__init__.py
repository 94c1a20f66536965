"""The commands with settings: one Hydra application each, started by :mod:`foretail.pipelines.cli`.

A stage is a module of its name with a function of its name, ``train(config, run_dir) -> StageResult``; its settings are
``foretail.configs.schema.STAGES[name]``. Nothing imports a stage. ``run`` has no module here: it runs what ``studies/``
declares. This table says what each does, with an example.
"""

STAGES: dict[str, tuple[str, str]] = {
    "collect": (
        "write labelled datasets: simulate or emulate LQD, draw a workload in slots, or import a trace",
        "foretail collect 'seeds=[1,2]'",
    ),
    "train": ("fit a drop predictor, choose its threshold, score and track it", "foretail train predictor.trees=4"),
    "evaluate": (
        "compare buffer policies in a network: simulated, or emulated with Linux's TCP",
        "foretail evaluate model=models:/foretail-drop@candidate 'policy=[lqd,credence,dt]'",
    ),
    "replay": (
        "compare buffer policies on given arrivals: a file of slotted arrivals, or recorded datasets",
        "foretail replay arrivals=arrivals.csv ports=20 buffer=1000",
    ),
    "choose": (
        "choose a sharing rule for given traffic, and tell what it is worth there",
        "foretail choose arrivals=arrivals.csv ports=20 buffer=1000",
    ),
    "export": (
        "turn a predictor into C, P4 or ONNX, proven equivalent",
        "foretail export model=models:/foretail-drop@candidate target=p4",
    ),
    "deploy": (
        "put a model into a running P4 switch beside the one that decides, and swap them by one write",
        "foretail deploy model=models:/foretail-drop@champion switch=127.0.0.1:9559",
    ),
    "promote": (
        "make a model the champion, if it passes the gate on runs held out from it",
        "foretail promote model=models:/foretail-drop@candidate to=champion",
    ),
    "demo": ("all of the above on one small scenario", "foretail demo size=small"),
    "schedule": (
        "make a periodic schedule of circuits for a demand matrix, with its throughput",
        "foretail schedule demand=demand.csv degree=4 k=3",
    ),
    "demand": (
        "train predictors of the demand and tell what the schedules of their predictions are worth",
        "foretail demand 'demand_predictor=[seasonal,linear_entries]'",
    ),
    "run": (
        "run an experiment: a study, a figure of a paper, a search or a map",
        "foretail run credence_fig14 size=small",
    ),
    "report": (
        "make one HTML page of a run or a sweep that opens without a network",
        "foretail report run=outputs/demo out=report.html",
    ),
}
